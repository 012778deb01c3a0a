"""The Django project of a small shop: its settings and its URLs. The application is in `orders`."""
