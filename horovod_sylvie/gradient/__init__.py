"""The gradient half: what each layer sends, and the exchange of it while backward goes on."""
