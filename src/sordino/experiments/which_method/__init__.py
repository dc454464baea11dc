"""Which method? Several tasks, epsilons and methods of the central and the local model, tuned with equal budgets."""
