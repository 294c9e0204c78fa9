"""The front door: public listeners, holding and counting requests, and the transport-level relay."""
