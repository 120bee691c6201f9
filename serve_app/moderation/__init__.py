"""What may be asked for and shown: thresholds, and the gate that every task passes on its way in and out."""
