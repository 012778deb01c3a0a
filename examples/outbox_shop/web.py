# web.py
from fastapi import FastAPI, HTTPException

from shop import Order, open_session, pack

app = FastAPI()


@app.post("/orders/{item}")
def place(item: str, card: str = "good") -> dict[str, int | str]:
    with open_session() as session, session.begin():
        order = Order(item=item)
        session.add(order)
        session.flush()  # the order gets its id
        receipt = pack.push_in(session, order.id)
        if card == "bad":
            raise HTTPException(402, "the card was refused")
        return {"order": order.id, "task": receipt.id}
