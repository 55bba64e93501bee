"""The agent inside the guest: asked over the channel that the driver announces; whatever it says is hostile."""
