"""The tools of an agent that pays invoices through a bank."""

from decimal import Decimal

from licet import Context, tool
from licet.handles import Json


@tool(
    capabilities={"network": {"allowed_hosts": ["localhost"]}, "secrets": ["bank/token"], "env": ["BANK_URL"]},
    effect="read_only",
    sandbox="restricted",
    connector="bank@2.1",
)
async def list_invoices(ctx: Context) -> Json:
    """The invoices that are open."""
    token = ctx.secrets.ref("bank/token")
    return (await ctx.fetch(f"{ctx.env.get('BANK_URL')}/invoices", headers={"Authorization": token})).json()


@tool(
    needs=["network:http:post@localhost", "secret:read:bank/token", "env:read:BANK_URL"],
    effect="destructive",  # a payment cannot be taken back: people agree to each one
    sandbox="restricted",
    connector="bank@2.1",
    cost_usd="100",  # the most that one call spends; set aside before it runs
)
async def pay(ctx: Context, recipient: str, amount: Decimal, reference: str) -> str:
    """Pay an invoice, in USD, and return the number of the transfer."""
    ctx.charge(amount)
    reply = await ctx.fetch(
        f"{ctx.env.get('BANK_URL')}/transfers",
        method="POST",
        headers={"Authorization": ctx.secrets.ref("bank/token")},
        json={"to": recipient, "usd": str(amount), "reference": reference},
    )
    transfer = reply.raise_for_status().json()
    return str(transfer["transfer"]) if isinstance(transfer, dict) else ""
