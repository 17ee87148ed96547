package process

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr/funcr"
)

// Environment variables that make the test binary a process of its own.
const (
	childRole       = "OPERATOR_TEST_CHILD"
	childKubeconfig = "OPERATOR_TEST_KUBECONFIG"
	childNamespace  = "OPERATOR_TEST_NAMESPACE"
)

// childConfig has times as short as may be.
func childConfig(kubeconfig, namespace string) *Config {
	c := DefaultConfig("machinist-test")
	c.ControlKubeconfig, c.TargetKubeconfig = kubeconfig, None
	c.LeaderElectionNamespace = namespace
	c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = 3*time.Second, 2*time.Second, 500*time.Millisecond
	c.HealthProbeBindAddress, c.MetricsBindAddress = "127.0.0.1:0", "0"
	return c
}

// beChild runs an operator that says "acting" over and over while its fence is open. In the role "deaf" the process
// goes on when the operator ended.
func beChild(role string) int {
	o := testOptions()
	o.Logger = funcr.New(func(prefix, args string) { fmt.Fprintln(os.Stderr, prefix, args) }, funcr.Options{})
	op, err := New(childConfig(os.Getenv(childKubeconfig), os.Getenv(childNamespace)), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := SignalContext(context.Background(), nil)
	defer stop()
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if op.Fence().Check() == nil {
				fmt.Println("acting")
			}
		}
	}()
	err = op.Run(ctx, nil)
	fmt.Println("ended:", err)
	if role == "deaf" {
		select {}
	}
	return 0
}
