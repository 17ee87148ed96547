// Package process is what Machinist's processes have in common: flags, the two clusters and their clients, leader
// election with its fence, probes, the cluster's identity, and an orderly end.
//
// A process is made in three steps: New builds a Process without any I/O; Run waits for the control cluster's API and
// for the kinds that the process needs, as long as it takes; then it calls the process's own setup function, which adds
// controllers to Manager, and runs them until its context ends or the lease is lost.
//
//	config := operator.DefaultConfig("machinist-manager")
//	config.AddFlags(flags)
//	...
//	op, err := operator.New(config, operator.Options{Scheme: scheme, ControlKinds: …, TargetKinds: …})
//	...
//	err = op.Run(ctx, func(ctx context.Context) error { return addControllers(op) })
package process
