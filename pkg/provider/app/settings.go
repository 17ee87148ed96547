package app

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"

	"machinist.dev/machinist/internal/admission"
	"machinist.dev/machinist/internal/health/orphans"
	"machinist.dev/machinist/internal/machine"
	"machinist.dev/machinist/internal/machine/drain"
	"machinist.dev/machinist/internal/machine/interruption"
	"machinist.dev/machinist/internal/platform/sharding"
)

// settings are the flags that every provider process has beside those of all processes.
type settings struct {
	concurrentMachines  int
	concurrentClasses   int
	concurrentDrains    int
	concurrentEvictions int
	maxInFlightCreates  int
	cloudQPS            float64
	cloudBurst          int
	bootstrapEndpoint   string
	bootstrapCAFile     string
	tokenGroups         []string
	approveKubeletCSRs  bool
	preserveTimeout     time.Duration
	preserveLimit       int
	requireTypeVersion  bool
	interruptions       interruption.Flags
	orphans             orphans.Rules
	orphansAction       string
	webhook             admission.Serving
}

// What is done about orphans.
const (
	deleteOrphans = "delete"
	reportOrphans = "report"
)

func defaultSettings() *settings {
	return &settings{
		concurrentMachines: 32, concurrentClasses: 4, concurrentDrains: drain.DefaultWorkers, concurrentEvictions: 20,
		cloudBurst: 10, approveKubeletCSRs: true,
		orphans: orphans.Rules{Period: orphans.DefaultPeriod, MinAge: orphans.DefaultMinAge,
			MaxDeletes: orphans.DefaultMaxDeletes},
		orphansAction:   deleteOrphans,
		preserveTimeout: machine.DefaultPreserveTimeout,
		preserveLimit:   machine.DefaultPreserveLimit,
	}
}

func (s *settings) addFlags(fs *pflag.FlagSet) {
	fs.IntVar(&s.concurrentMachines, "concurrent-machines", s.concurrentMachines, "machines worked on at the same time")
	fs.IntVar(&s.concurrentClasses, "concurrent-classes", s.concurrentClasses,
		"machine classes worked on at the same time")
	fs.IntVar(&s.concurrentDrains, "concurrent-drains", s.concurrentDrains,
		"nodes whose pods are checked at the same time; at least half as many again as --concurrent-evictions, whatever is given")
	fs.IntVar(&s.concurrentEvictions, "concurrent-evictions", s.concurrentEvictions,
		"evictions under way at the same time")
	fs.IntVar(&s.maxInFlightCreates, "max-in-flight-creates", s.maxInFlightCreates,
		"instances being created at the same time, from the call that asks for one until it runs; 0 is no limit")
	fs.Float64Var(&s.cloudQPS, "cloud-qps", s.cloudQPS,
		"calls to the cloud per second, of the whole process; 0 is no limit")
	fs.IntVar(&s.cloudBurst, "cloud-burst", s.cloudBurst, "calls to the cloud that may be made at once, with --cloud-qps")
	fs.StringVar(&s.bootstrapEndpoint, "bootstrap-endpoint", "",
		"URL of the target cluster's API server as instances reach it; default: that of the target kubeconfig")
	fs.StringVar(&s.bootstrapCAFile, "bootstrap-ca-file", "",
		"PEM file of the authority that verifies --bootstrap-endpoint; default: that of the target kubeconfig")
	fs.StringSliceVar(&s.tokenGroups, "bootstrap-token-groups", nil,
		"groups that a machine's bootstrap token authenticates as beside system:bootstrappers:machinist, such as system:bootstrappers:k3s:default-node-token; the value nodeBootstrapper.tokenGroups of the chart machinist must have the same ones in the same order")
	fs.BoolVar(&s.approveKubeletCSRs, "approve-kubelet-csrs", s.approveKubeletCSRs,
		"approve the certificates that the kubelets of this provider's machines ask for in the target cluster, each only for its own machine; otherwise the target cluster must have another approver")
	fs.DurationVar(&s.preserveTimeout, "preserve-timeout", s.preserveTimeout,
		"time for which a machine that was preserved with the annotation machinist.dev/preserve is kept before it is deleted")
	fs.IntVar(&s.preserveLimit, "preserve-limit", s.preserveLimit,
		"how many machines of one MachineDeployment, or of one MachineSet alone, are preserved at a time because they failed (machinist.dev/preserve=when-failed); others are replaced as usual")
	fs.BoolVar(&s.requireTypeVersion, "require-type-version", s.requireTypeVersion,
		"neither launch nor change machines without the label machinist.dev/type-version; those that a MachineSet makes have it")
	s.interruptions.AddFlags(fs)
	fs.DurationVar(&s.orphans.Period, "orphan-check-period", s.orphans.Period,
		"time between two checks for instances that have no Machine; one is removed if two checks in a row find it; after an outage nothing is removed for as long")
	fs.DurationVar(&s.orphans.MinAge, "orphan-min-age", s.orphans.MinAge,
		"age from which an instance without a Machine is removed")
	fs.StringVar(&s.orphansAction, "orphan-action", s.orphansAction,
		"what to do with instances that have no Machine: delete or report")
	s.webhook.AddFlags(fs)
	fs.IntVar(&s.orphans.MaxDeletes, "orphan-max-deletes", s.orphans.MaxDeletes,
		"instances without a Machine that are removed at one check most")
}

// tokenGroup is what Kubernetes' authenticator of bootstrap tokens accepts as a group.
var tokenGroup = regexp.MustCompile(`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`)

func (s *settings) validate() error {
	var errs []error
	for flag, value := range map[string]int{
		"concurrent-machines": s.concurrentMachines, "concurrent-classes": s.concurrentClasses,
		"concurrent-drains":    s.concurrentDrains,
		"concurrent-evictions": s.concurrentEvictions, "cloud-burst": s.cloudBurst,
	} {
		if value < 1 {
			errs = append(errs, fmt.Errorf("--%s is %d; it must be at least 1", flag, value))
		}
	}
	if s.maxInFlightCreates < 0 {
		errs = append(errs, fmt.Errorf("--max-in-flight-creates is %d; it must not be negative", s.maxInFlightCreates))
	}
	if err := s.webhook.Validate(); err != nil {
		errs = append(errs, err)
	}
	if s.cloudQPS < 0 {
		errs = append(errs, fmt.Errorf("--cloud-qps is %g; it must not be negative", s.cloudQPS))
	}
	if s.bootstrapEndpoint != "" {
		if u, err := url.Parse(s.bootstrapEndpoint); err != nil || u.Scheme != "https" || u.Host == "" {
			errs = append(errs, fmt.Errorf("--bootstrap-endpoint is %q; it must be a URL such as https://api.example.com:6443",
				s.bootstrapEndpoint))
		}
	}
	for _, group := range s.tokenGroups {
		if !tokenGroup.MatchString(group) {
			errs = append(errs, fmt.Errorf("--bootstrap-token-groups has %q; Kubernetes accepts names that match %s", group, tokenGroup))
		}
	}
	if s.preserveTimeout < time.Second {
		errs = append(errs, fmt.Errorf("--preserve-timeout is %s; it must be at least 1s", s.preserveTimeout))
	}
	if s.preserveLimit < 1 {
		errs = append(errs, fmt.Errorf("--preserve-limit is %d; it must be at least 1", s.preserveLimit))
	}
	if _, err := s.interruptions.Signals(); err != nil {
		errs = append(errs, err)
	}
	if s.orphans.Period < time.Second {
		errs = append(errs, fmt.Errorf("--orphan-check-period is %s; it must be at least 1s", s.orphans.Period))
	}
	if s.orphans.MinAge < 0 {
		errs = append(errs, fmt.Errorf("--orphan-min-age is %s; it must not be negative", s.orphans.MinAge))
	}
	if s.orphans.MaxDeletes < 1 {
		errs = append(errs, fmt.Errorf("--orphan-max-deletes is %d; it must be at least 1 (--orphan-action=%s removes none)",
			s.orphans.MaxDeletes, reportOrphans))
	}
	if s.orphansAction != deleteOrphans && s.orphansAction != reportOrphans {
		errs = append(errs, fmt.Errorf("--orphan-action is %q; it must be %s or %s", s.orphansAction, deleteOrphans,
			reportOrphans))
	}
	return errors.Join(errs...)
}

// orphanRules returns what the flags say about orphans, for an installation.
func (s *settings) orphanRules(clusterID, namespace string, shard sharding.Shard) orphans.Rules {
	r := s.orphans
	r.ClusterID, r.Namespace, r.Shard = clusterID, namespace, shard
	r.ReportOnly = s.orphansAction == reportOrphans
	return r
}

// limiter returns the process's own limit of calls to the cloud, nil for none.
func (s *settings) limiter() *rate.Limiter {
	if s.cloudQPS == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(s.cloudQPS), s.cloudBurst)
}

// targetAPI returns what says how instances reach and verify the target cluster's API server: by the flags, else as the
// target's kubeconfig says at the time. A file that a flag names must be there.
func (s *settings) targetAPI(kubeconfig func() (*rest.Config, error)) (func() (machine.Endpoint, error), error) {
	var given []byte
	if s.bootstrapCAFile != "" {
		var err error
		if given, err = os.ReadFile(s.bootstrapCAFile); err != nil {
			return nil, fmt.Errorf("--bootstrap-ca-file: %w", err)
		}
	}
	return func() (machine.Endpoint, error) {
		api := machine.Endpoint{URL: s.bootstrapEndpoint, CABundle: given}
		if api.URL != "" && given != nil {
			return api, nil
		}
		target, err := kubeconfig()
		if err != nil {
			return machine.Endpoint{}, err
		}
		if api.URL == "" {
			u, _, err := rest.DefaultServerUrlFor(target)
			if err != nil {
				return machine.Endpoint{}, fmt.Errorf("the target kubeconfig's server: %w", err)
			}
			api.URL = u.Scheme + "://" + u.Host
		}
		switch {
		case given != nil:
		case len(target.CAData) > 0:
			api.CABundle = target.CAData
		case target.CAFile != "":
			if api.CABundle, err = os.ReadFile(target.CAFile); err != nil {
				return machine.Endpoint{}, fmt.Errorf("the target kubeconfig's certificate authority: %w", err)
			}
		}
		return api, nil
	}, nil
}
