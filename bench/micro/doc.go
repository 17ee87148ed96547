// Package micro has benchmarks of single steps: what one reconcile of each kind, and each hot function, costs in
// fleets of 100 and of 10,000 machines. Reads come from the real cache, filled from memory; nothing is written.
//
//	go test -bench . -benchmem ./bench/micro
//
// The tests beside them count allocations, which have no noise: what a reconcile allocates must not grow with the
// fleet.
package micro
