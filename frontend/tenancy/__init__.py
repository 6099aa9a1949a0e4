"""The pages of who may have what: tenants, epochs, the portal of a tenant, settings."""
