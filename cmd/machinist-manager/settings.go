package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"machinist.dev/machinist/internal/admission"
	"machinist.dev/machinist/internal/health/healthcheck"
	"machinist.dev/machinist/internal/health/overshoot"
	"machinist.dev/machinist/internal/platform/validation"
)

type settings struct {
	concurrentSets        int
	concurrentDeployments int
	outdatedNodeTaints    bool
	health                healthcheck.BuiltIn
	remediationKinds      []string
	overshoot             overshoot.Limits
	webhook               admission.ServingOptions
}

func (s *settings) addFlags(fs *pflag.FlagSet) {
	fs.IntVar(&s.concurrentSets, "concurrent-machinesets", 8, "maximum number of MachineSets that are reconciled at the same time")
	fs.IntVar(&s.concurrentDeployments, "concurrent-machinedeployments", 8,
		"maximum number of MachineDeployments that are reconciled at the same time")
	s.health.AddFlags(fs)
	fs.StringSliceVar(&s.remediationKinds, validation.RemediationKindsFlag, nil,
		"kinds of remediations that the manager may create in the target cluster, for operators such as Medik8s: KIND.GROUP, such as SelfNodeRemediation.self-node-remediation.medik8s.io. By default, spec.remediation.templateRef of a MachineHealthCheck is refused")
	s.overshoot.AddFlags(fs)
	s.webhook.AddFlags(fs)
	fs.BoolVar(&s.outdatedNodeTaints, "outdated-node-taints", true,
		"taint and annotate Nodes of old revisions during a rollout, so that pods prefer the new Nodes and autoscalers keep the old ones. If false, existing taints and annotations are removed")
}

func (s *settings) validate() error {
	var errs []error
	for flag, value := range map[string]int{"concurrent-machinesets": s.concurrentSets,
		"concurrent-machinedeployments": s.concurrentDeployments} {
		if value < 1 {
			errs = append(errs, fmt.Errorf("--%s is %d; it must be at least 1", flag, value))
		}
	}
	_, err := s.health.Policy()
	_, kindErr := validation.ParseRemediationKinds(s.remediationKinds)
	return errors.Join(append(errs, err, kindErr, s.overshoot.Validate(), s.webhook.Validate())...)
}
