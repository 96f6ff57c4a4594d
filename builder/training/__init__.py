"""How a model learns: the LightningModule around any LanguageModel, and the rooms objective, optimizer, schedule."""
