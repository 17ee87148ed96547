package process

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr/funcr"
)

// These environment variables turn the test binary into a child process.
const (
	childRole       = "PROCESS_TEST_CHILD"
	childKubeconfig = "PROCESS_TEST_KUBECONFIG"
	childNamespace  = "PROCESS_TEST_NAMESPACE"
)

func childConfig(kubeconfig, namespace string) *Config {
	c := DefaultConfig("machinist-test")
	c.ControlKubeconfig, c.TargetKubeconfig = kubeconfig, NoCluster
	c.LeaderElectionNamespace = namespace
	c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = 3*time.Second, 2*time.Second, 500*time.Millisecond
	c.HealthProbeBindAddress, c.MetricsBindAddress = "127.0.0.1:0", "0"
	return c
}

// beChild runs a Process that prints "acting" while its fence is open. In the role "deaf", the child continues after
// its Process has ended.
func beChild(role string) int {
	o := testOptions()
	o.Logger = funcr.New(func(prefix, args string) { fmt.Fprintln(os.Stderr, prefix, args) }, funcr.Options{})
	p, err := New(childConfig(os.Getenv(childKubeconfig), os.Getenv(childNamespace)), o)
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
			if p.Fence().Check() == nil {
				fmt.Println("acting")
			}
		}
	}()
	err = p.Run(ctx, nil)
	fmt.Println("ended:", err)
	if role == "deaf" {
		select {}
	}
	return 0
}
