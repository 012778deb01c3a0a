"""Producers, workers, sweepers and operators around the model, driven by a seeded scheduler."""
