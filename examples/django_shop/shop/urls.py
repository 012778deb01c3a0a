from django.contrib import admin
from django.urls import path

from orders import views

urlpatterns = [
    path("", views.page),
    path("customer", views.switch_customer),
    path("orders", views.orders),
    path("orders/<int:order>/pay", views.pay_again),
    path("reports", views.start_report),
    path("reports/<str:task>", views.report),
    path("reports/<str:task>/cancel", views.cancel_report),
    path("admin/", admin.site.urls),
]
