"""A small web shop: products, a form that places orders, and the list of orders. All data is in PostgreSQL.

    GET  /          the shop
    POST /orders    product=NAME&quantity=NUMBER; places an order
    GET  /orders    all orders as JSON
    GET  /health    200 if the database answers

The database is configured with the variables of libpq: PGHOST, PGUSER, PGPASSWORD.
"""

import html
import json
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import psycopg2

PRODUCTS = {"apple": 0.30, "bread": 2.80, "coffee": 6.50}
SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (
    id serial PRIMARY KEY,
    product text NOT NULL,
    quantity integer NOT NULL CHECK (quantity BETWEEN 1 AND 100)
)
"""
PAGE = """<!doctype html>
<title>Shop</title>
<h1>Shop</h1>
<form method="post" action="/orders">
<select name="product">{options}</select>
<input name="quantity" type="number" min="1" max="100" value="1">
<button>Order</button>
</form>
<h2>Orders</h2>
<ul>{orders}</ul>
"""


def query(statement: str, values: tuple[object, ...] = ()) -> list[Any]:
    """Runs one statement in a transaction of its own. Returns its rows."""
    connection = psycopg2.connect(dbname="postgres", connect_timeout=5)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall()) if cursor.description else []
    finally:
        connection.close()


def orders() -> list[dict[str, object]]:
    rows = query("SELECT id, product, quantity FROM orders ORDER BY id")
    return [{"id": row[0], "product": row[1], "quantity": row[2]} for row in rows]


def place_order(form: dict[str, list[str]]) -> None:
    """Raises ValueError for an invalid form."""
    product, quantity = form.get("product", [""])[0], int(form.get("quantity", ["1"])[0])
    if product not in PRODUCTS or not 1 <= quantity <= 100:
        raise ValueError("expected a product of the shop and a quantity from 1 to 100")
    query("INSERT INTO orders (product, quantity) VALUES (%s, %s)", (product, quantity))


def page() -> str:
    options = (f"<option value={name}>{name} {price:.2f}" for name, price in PRODUCTS.items())
    lines = (f"<li>{order['quantity']} {html.escape(str(order['product']))}" for order in orders())
    return PAGE.format(options="".join(options), orders="".join(lines))


class Shop(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        try:
            match self.path:
                case "/":
                    self.respond(HTTPStatus.OK, page(), "text/html; charset=utf-8")
                case "/orders":
                    self.respond(HTTPStatus.OK, json.dumps(orders()) + "\n", "application/json")
                case "/health":
                    query("SELECT 1 FROM orders LIMIT 1")
                    self.respond(HTTPStatus.OK, "ok\n")
                case _:
                    self.respond(HTTPStatus.NOT_FOUND, "not found\n")
        except psycopg2.Error as err:
            self.respond(HTTPStatus.SERVICE_UNAVAILABLE, f"database: {err}\n")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        try:
            place_order(parse_qs(body))
        except ValueError as err:
            self.respond(HTTPStatus.BAD_REQUEST, f"invalid order: {err}\n")
        except psycopg2.Error as err:
            self.respond(HTTPStatus.SERVICE_UNAVAILABLE, f"database: {err}\n")
        else:
            self.respond(HTTPStatus.SEE_OTHER, "order placed\n", location="/")

    def respond(
        self, status: HTTPStatus, text: str, kind: str = "text/plain", *, location: str = ""
    ) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(content)


if __name__ == "__main__":
    query(SCHEMA)
    print("shop: listening on port 8000")
    ThreadingHTTPServer(("", 8000), Shop).serve_forever()
