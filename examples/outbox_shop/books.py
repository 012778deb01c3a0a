# books.py
from sqlalchemy import func, select

from shop import Order, Parcel, open_session

if __name__ == "__main__":
    with open_session() as session:
        orders = session.scalar(select(func.count(Order.id)))
        parcels = session.scalar(select(func.count(Parcel.id)))
        packed = session.scalar(select(func.count(Parcel.order_id.distinct())))
    print(f"{orders} orders, {parcels} parcels, {packed} orders packed")
