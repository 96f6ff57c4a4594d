"""What every architecture shares: context, mask, state, embedding, stack, the language model and its assembly."""
