package main

// corruptionMutants are bugs that show only where somebody changes what is stored.
func corruptionMutants() []mutant {
	return []mutant{
		{
			name: "changed-scope-believed", quick: true, file: "internal/machine/own_status.go",
			from:     "is.Provider, is.Scope, is.LaunchTime = was.Provider, was.Scope, was",
			to:       "is.Provider, is.LaunchTime = was.Provider, was",
			scenario: "delete", finds: "I1|order",
			corruption: "0:control/Machine/fleet/web-2b8fpn8lk-00001/status/instance/scope=highest",
		},
		{
			name: "changed-scope-believed-after-a-restart", file: "internal/machine/absence_scope.go",
			from:     `recorded == "" || recorded ==`,
			to:       `recorded != "" || recorded !=`,
			scenario: "scope-changed-before-a-restart", finds: "I1|order|vanished",
		},
		{
			name: "changed-drain-believed", file: "internal/machine/own_status.go",
			from:     "said(now.drained) && !said(r.drained)",
			to:       "said(now.drained) && said(r.drained)",
			scenario: "interruption-withdrawn", finds: "I7", last: 2,
			corruption: "61:control/Machine/fleet/web-2b8fpn8lk-00002/status/conditions/type=Drained/status=other-2",
		},
		{
			name: "changed-condition-kept", file: "internal/machine/own_status.go",
			from:     "said(is) && (is.Reason != was.Reason",
			to:       "!said(is) && (is.Reason != was.Reason",
			scenario: "create", finds: "the end differs",
			corruption: "end:control/Machine/fleet/web-2b8fpn8lk-00001/status/conditions/type=Launched/reason=highest",
		},
		{
			name: "operation-without-a-time", file: "internal/machine/status.go",
			from: "at == nil || at.Sub(p.now) > furthestAhead", to: "at != nil && at.Sub(p.now) > furthestAhead",
			scenario: "delete", finds: "panic",
			corruption: "20:control/Machine/fleet/web-2b8fpn8lk-00001/status/lastOperation/lastUpdateTime=dropped",
		},
		{
			name: "finalizer-not-put-back", file: "internal/machine/controller.go",
			from:     `hasFinalizer(p.machine) && p.machine.Labels[v1beta1.LabelProvider] != ""`,
			to:       `p.machine.Labels[v1beta1.LabelProvider] != ""`,
			scenario: "create", finds: "the end differs",
			corruption: "end:control/Machine/fleet/web-2b8fpn8lk-00001/metadata/finalizers=dropped",
		},
		{
			name: "provider-label-not-put-back", file: "internal/machine/controller.go",
			from:     `hasFinalizer(p.machine) && p.machine.Labels[v1beta1.LabelProvider] != ""`,
			to:       `hasFinalizer(p.machine)`,
			scenario: "create", finds: "the end differs",
			corruption: "end:control/Machine/fleet/web-2b8fpn8lk-00001/metadata/labels/machinist.dev~1provider=dropped",
		},
		{
			name: "instance-with-other-tags-collected", file: "internal/safety/orphans/plan.go",
			from: "	case claimed[d.ID]:", to: `	case claimed[d.ID] && s.ClusterID == "":`,
			scenario: "orphans", finds: "orphans: |is lost|vanished",
			corruption: "end:cloud/Instance/-/fake:~1~1~11/tags/machineUID=highest",
		},
		{
			name: "lost-fleet-remembered-by-the-class-alone", file: "internal/safety/orphans/plan.go",
			from: "p.Observations[d.ID] = observation\n",
			to: "if s.Blocked {\n\t\t\t\tobservation.Blocked = false\n\t\t\t}\n" +
				"\t\t\tp.Observations[d.ID] = observation\n\t\t\tobservation.Blocked = observation.Blocked || s.Blocked\n",
			scenario: "machines-lost", finds: "orphans",
			corruption: "374:control/MachineClass/fleet/a/status/conditions=emptied",
		},
		{
			name: "changed-phase-of-a-migration-believed", file: "internal/migration/own_status.go",
			from: "if known.uid != m.UID ||", to: "if known.uid == m.UID ||",
			scenario: "migrate-K-abort", finds: "settled, but|J",
			corruption: "end:control/Migration/fleet/over/status/phase=other-2",
		},
		{
			name: "lease-that-was-not-released-taken", quick: true, file: "internal/operator/fence/lease.go",
			from:     `record.HolderIdentity == "" && !isReleased(record)`,
			to:       `record.HolderIdentity == "" && isReleased(record)`,
			scenario: "delete", finds: "leaders: ",
			corruption: "end:control/Lease/machinist-system/machinist-manager/spec/holderIdentity=dropped",
		},
		{
			name: "name-of-a-candidate-in-a-lease-believed", file: "internal/operator/fence/lease.go",
			from:     "record.HolderIdentity == l.Holder && !l.shared && !l.asked {",
			to:       "record.HolderIdentity == l.Holder && l.shared && !l.asked {",
			scenario: "delete", finds: "leaders: ",
			corruption: "end:control/Lease/machinist-system/machinist-manager/spec/holderIdentity=other",
		},
		{
			name: "transitions-beyond-the-greatest-number", file: "internal/operator/fence/lease.go",
			from:     "record.LeaderTransitions < 0 || record.LeaderTransitions > math.MaxInt32",
			to:       "record.LeaderTransitions < 0 && record.LeaderTransitions > math.MaxInt32",
			scenario: "delete", finds: "election: ",
			corruption: "end:control/Lease/machinist-system/machinist-manager/spec/leaseTransitions=highest",
		},
		{
			name: "node-of-another-kept", file: "internal/machine/registration.go",
			from:     `paired.UID == ref.UID && paired.Spec.ProviderID != ""`,
			to:       `paired.UID != ref.UID && paired.Spec.ProviderID != ""`,
			scenario: "incident-addresses-come-late", finds: "was not approved",
			corruption: "27:control/Machine/fleet/web-m2pklr97x-00002/status/nodeRef=of-another",
		},
		{
			name: "failure-without-a-reason-believed", file: "internal/machinestate/machinestate.go",
			from:     `m.Status.Phase == v1beta1.MachineFailed && m.Status.FailureReason != ""`,
			to:       `m.Status.Phase == v1beta1.MachineFailed`,
			scenario: "drain-for-update", finds: "is lost",
			corruption: "end:control/Machine/fleet/web-2b8fpn8lk-00002/status/phase=other-4",
		},
		{
			name: "launch-step-of-a-former-instance-believed", file: "internal/machine/own_status.go",
			from:     "l.OldProviderID != id {",
			to:       `l.OldProviderID == "" {`,
			scenario: "in-place-by-selection", finds: "is lost",
			corruption: "end:control/Machine/fleet/web-2b8fpn8lk-00002/status/launch/step=former",
		},
		{
			name: "changed-workloads-of-a-migration-believed", file: "internal/migration/own_status.go",
			from:     "return !slices.Contains(is.Fence.Workloads, w)",
			to:       "return len(is.Fence.Workloads) == 0 && !slices.Contains(is.Fence.Workloads, w)",
			scenario: "migrate-K-abort", finds: "settled, but|J",
			corruption: "211:control/Migration/fleet/over/status/fence/workloads/#0/replicas=emptied",
		},
		{
			name: "abort-waits-without-a-word", file: "internal/migration/abort.go",
			from: "p.nameBlocked(mine, secrets)", to: "_ = mine",
			scenario: "migrate-K-abort", finds: "steps in",
			corruption: "362:control/MachineClass/fleet/b/spec/credentialsRef/name=of-another",
		},
		{
			name: "abort-without-a-finalizer-undoes-nothing", file: "internal/migration/abort.go",
			from: "if !begun {", to: "if !begun || len(p.migration.Status.Fence.Workloads) == 0 {", last: 9,
			scenario: "migrate-K-abort", finds: "J6: ",
			corruption: "309:control/Migration/fleet/over/metadata/finalizers=dropped",
		},
	}
}
