// Package process contains what all of Machinist's processes share: flags, the two clusters and their clients, leader
// election and its fence, probes, the cluster ID, and an orderly shutdown.
//
// A process starts in three steps. New builds a Process without any I/O. Run waits, without a time limit, for the
// control cluster's API and for the kinds that the process needs. Then Run calls the setup function of the process,
// which adds controllers to Manager. Run then runs the controllers until the context ends or the Lease is lost.
//
//	config := process.DefaultConfig("machinist-manager")
//	config.AddFlags(flags)
//	...
//	p, err := process.New(config, process.Options{Scheme: scheme, ControlKinds: …, TargetKinds: …})
//	...
//	err = p.Run(ctx, func(ctx context.Context) error { return addControllers(p) })
package process
