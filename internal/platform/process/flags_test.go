package process

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
)

func parsed(t *testing.T, args ...string) *Config {
	t.Helper()
	c := DefaultConfig("machinist-manager")
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	c.AddFlags(fs)
	c.AddShardFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return c
}

// Rule: bad-flags-end-process.
func TestOnlyTheTargetKubeconfigHasNoDefault(t *testing.T) {
	if err := parsed(t, "--target-kubeconfig=none").Validate(); err != nil {
		t.Error(err)
	}
	if err := parsed(t).Validate(); err == nil ||
		!strings.HasPrefix(err.Error(), "--target-kubeconfig is not set: give the path ") {
		t.Errorf("Validate() = %v, want an error that names --target-kubeconfig and possible values", err)
	}
}

func TestEveryFieldHasADocumentedFlag(t *testing.T) {
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	c := DefaultConfig("x")
	c.AddFlags(fs)
	c.AddShardFlags(fs)
	n := 0
	fs.VisitAll(func(f *pflag.Flag) {
		n++
		if f.Usage == "" || !strings.HasSuffix(f.Usage, ".") {
			t.Errorf("--%s: usage %q is not a sentence", f.Name, f.Usage)
		}
	})
	if want := reflect.TypeFor[Config]().NumField() - 1; n != want {
		t.Errorf("%d flags, want %d: one for every field but Name", n, want)
	}
}

// Rule: bad-flags-end-process.
func TestValidateNamesTheFlagOfAnInvalidValue(t *testing.T) {
	for _, args := range []string{
		"--control-kubeconfig=",
		"--control-kubeconfig=none",
		"--namespace=Not_A_Name",
		"--leader-election-namespace=a.b",
		"--cluster-id=with space",
		"--cluster-id=/",
		"--leader-election-retry-period=0s",
		"--apiserver-check-period=0s",
		"--apiserver-check-timeout=-1s",
		"--leader-election-renew-deadline=1s",
		"--leader-election-renew-deadline=-1s",
		"--leader-election-lease-duration=10s",
		"--leader-election-lease-duration=10900ms",
		"--leader-election-lease-duration=301s",
		"--health-probe-bind-address=8081",
		"--metrics-bind-address=localhost",
		"--pprof-bind-address=:a:b",
		"--control-qps=0",
		"--control-qps=-2",
		"--target-qps=NaN",
		"--control-burst=0 --control-qps=5",
		"--target-burst=-1 --target-qps=5",
		"--graceful-shutdown-timeout=0s",
		"--log-level=loud",
		"--log-level=-1",
		"--log-format=xml",
		"--shards=65",
		"--shards=-1",
		"--shard=4 --shards=4",
		"--shard=-2 --shards=4",
		"--shard=1",
		"--shard=-2",
		"--shards=4 --namespace=team",
		"--shards=4 --leader-elect=false",
	} {
		fields := strings.SplitAfter(args, " --")
		for i := range fields {
			fields[i] = strings.TrimSuffix(fields[i], " --")
			if i > 0 {
				fields[i] = "--" + fields[i]
			}
		}
		named, value, _ := strings.Cut(fields[0], "=")
		if named += "="; value == "" {
			named = strings.TrimSuffix(named, "=") + " is not set: "
		}
		err := parsed(t, append(fields, "--target-kubeconfig=none")...).Validate()
		if err == nil || !strings.Contains(err.Error(), named) {
			t.Errorf("%s: Validate() = %v, want an error that names the flag", args, err)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than one error: %v", args, err)
		}
	}
}

// Rule: bad-flags-end-process.
func TestValidateNeedsTheShardOfSeveral(t *testing.T) {
	err := parsed(t, "--target-kubeconfig=none", "--shards=4").Validate()
	if err == nil || !strings.HasPrefix(err.Error(), "--shard is not set: with --shards=4, ") {
		t.Errorf("Validate() = %v, want an error that asks for --shard", err)
	}
	for _, args := range [][]string{{"--shards=4", "--shard=3"}, {"--shards=1", "--shard=0"}, {"--shard=0"}} {
		if err := parsed(t, append(args, "--target-kubeconfig=none")...).Validate(); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestValidateAcceptsShortLeaseTimes(t *testing.T) {
	c := parsed(t, "--target-kubeconfig=none", "--leader-election-lease-duration=3s",
		"--leader-election-renew-deadline=2s", "--leader-election-retry-period=500ms")
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if c.LeaseDuration != 3*time.Second {
		t.Errorf("lease duration %s", c.LeaseDuration)
	}
}

func TestLeaseTimesDoNotMatterWithoutLeaderElection(t *testing.T) {
	if err := parsed(t, "--target-kubeconfig=none", "--leader-elect=false",
		"--leader-election-lease-duration=0").Validate(); err != nil {
		t.Error(err)
	}
}

func TestNamespaceAndNameOfTheLease(t *testing.T) {
	for _, test := range []struct {
		args            []string
		namespace, name string
	}{
		{[]string{"--control-kubeconfig=/a"}, "kube-system", "machinist-manager"},
		{[]string{"--control-kubeconfig=/a", "--namespace=team"}, "team", "machinist-manager-team"},
		{[]string{"--control-kubeconfig=/a", "--namespace=team", "--leader-election-namespace=leases"}, "leases",
			"machinist-manager-team"},
		{[]string{"--leader-election-namespace=leases"}, "leases", "machinist-manager"},
	} {
		c := parsed(t, test.args...)
		namespace, err := c.leaderElectionNamespace()
		if err != nil {
			t.Error(err)
		}
		if namespace != test.namespace || c.leaseName() != test.name {
			t.Errorf("%v: lease %s/%s, want %s/%s", test.args, namespace, c.leaseName(), test.namespace, test.name)
		}
	}
}

func TestLogLevels(t *testing.T) {
	for level, want := range map[string]struct{ info, debug, four bool }{
		"error": {}, "info": {info: true}, "debug": {info: true, debug: true}, "0": {info: true}, "4": {true, true, true},
	} {
		for _, format := range []string{"json", "text"} {
			c := parsed(t, "--log-level="+level, "--log-format="+format)
			logger, err := c.newLogger()
			if err != nil {
				t.Fatal(err)
			}
			if logger.Enabled() != want.info || logger.V(1).Enabled() != want.debug || logger.V(4).Enabled() != want.four {
				t.Errorf("%s: info %t, debug %t, 4 %t, want %v", level, logger.Enabled(), logger.V(1).Enabled(),
					logger.V(4).Enabled(), want)
			}
		}
	}
	if _, err := parsed(t, "--log-level=loud").newLogger(); err == nil {
		t.Error("no error for an unknown level")
	}
}

func TestAllClientsShareTheRateLimit(t *testing.T) {
	limited, _, err := restConfig("control-kubeconfig", planes.control.Kubeconfig(), "test", 10, 20, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	if limited.RateLimiter == nil || limited.RateLimiter.QPS() != 10 {
		t.Errorf("rate limiter %v, want one of 10 per second that all clients share", limited.RateLimiter)
	}
	if lease := leaseConfig(limited, 9*time.Second); lease.RateLimiter != nil || lease.QPS >= 0 ||
		lease.Timeout != 3*time.Second {
		t.Errorf("the Lease is renewed with limiter %v, QPS %v, timeout %s", lease.RateLimiter, lease.QPS, lease.Timeout)
	}
	free, _, err := restConfig("control-kubeconfig", planes.control.Kubeconfig(), "test", -1, 100, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	if free.RateLimiter != nil || free.QPS >= 0 {
		t.Errorf("limiter %v, QPS %v, want none", free.RateLimiter, free.QPS)
	}
}
