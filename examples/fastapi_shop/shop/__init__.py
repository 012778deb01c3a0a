"""A small shop: orders, payments, and a sales report. FastAPI, SQLAlchemy and Relier."""
