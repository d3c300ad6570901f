"""The sink `headrace`: rows of a DataFrame published to an exchange."""
