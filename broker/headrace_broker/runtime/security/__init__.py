"""Log-ins, passwords, certificates, TLS, and the audit log."""
