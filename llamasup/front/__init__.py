"""The front door: public listeners, holding and counting requests, the relay."""
