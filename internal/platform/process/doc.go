// Package process contains the code that all of Machinist's processes share: flags, clients of the two clusters, leader
// election, probes, the cluster ID, and shutdown.
//
// New builds a Process without any I/O. Run waits without a time limit for the control cluster and the kinds that the
// process needs. Run then calls the setup function, which adds controllers to Manager. After that, the controllers work
// until the context ends or the Lease is lost.
//
//	config := process.DefaultConfig("machinist-manager")
//	config.AddFlags(flags)
//	...
//	p, err := process.New(config, process.Options{Scheme: scheme, ControlKinds: …, TargetKinds: …})
//	...
//	err = p.Run(ctx, func(ctx context.Context) error { return addControllers(p) })
package process
