"""The engine of operations: observe, plan, dispatch, conclude. The rules are `kvcore.plan_steps` and `plan_state`."""
