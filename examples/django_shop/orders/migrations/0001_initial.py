from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("customer", models.CharField(max_length=100)),
                ("item", models.CharField(max_length=100)),
                ("cents", models.PositiveIntegerField()),
                (
                    "status",
                    models.CharField(
                        choices=[("waiting", "Waiting"), ("paid", "Paid"), ("declined", "Declined")],
                        default="waiting",
                        max_length=10,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Report",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("customer", models.CharField(max_length=100)),
                ("task", models.CharField(max_length=64, unique=True)),
            ],
        ),
    ]
