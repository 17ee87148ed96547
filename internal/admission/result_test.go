package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

type want struct{ errors, warnings []string }

func (w want) check(t *testing.T, v Result) {
	t.Helper()
	var errors []string
	for _, e := range v.Errors {
		errors = append(errors, e.Error())
	}
	for _, list := range []struct {
		what      string
		got, want []string
	}{{"errors", errors, w.errors}, {"warnings", slices.Clone(v.Warnings), w.warnings}} {
		slices.Sort(list.got)
		slices.Sort(list.want)
		ok := len(list.got) == len(list.want)
		for i := 0; ok && i < len(list.got); i++ {
			ok = strings.HasPrefix(list.got[i], list.want[i])
		}
		if !ok {
			t.Errorf("%s:\n  %s\nwant:\n  %s", list.what, strings.Join(list.got, "\n  "), strings.Join(list.want, "\n  "))
		}
	}
}

var (
	minute = &metav1.Duration{Duration: time.Minute}
	zero   = &metav1.Duration{}
)

func classRef() *v1beta1.LocalRef { return &v1beta1.LocalRef{Name: "small"} }

func template() v1beta1.MachineTemplateSpec {
	return v1beta1.MachineTemplateSpec{
		ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"pool": "a"}},
		Spec:       v1beta1.MachineSpec{ClassRef: classRef()},
	}
}

func deploymentNamed(name string) *v1beta1.MachineDeployment {
	return &v1beta1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta1.MachineDeploymentSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}, Template: template(),
			Strategy: v1beta1.DeploymentStrategy{Type: v1beta1.StrategyRollingUpdate},
		},
	}
}

func setNamed(name string) *v1beta1.MachineSet {
	return &v1beta1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta1.MachineSetSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}, Template: template(),
		},
	}
}

func environment(adoption v1beta1.AdoptionPolicy, claims ...Claim) Environment {
	return Environment{Claims: claims, Class: func(name string) (*v1beta1.MachineClass, bool) {
		class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1beta1.MachineClassSpec{Adoption: adoption}}
		return class, name == "small"
	}}
}

func claim(kind, name, pool string) Claim {
	labels := map[string]string{"pool": pool}
	return Claim{Kind: kind, Name: name, Selector: &metav1.LabelSelector{MatchLabels: labels}, Labels: labels}
}

// Rules: manager-webhook-refuses, unwise-is-warned.
func TestMachine(t *testing.T) {
	key := func(k string) corev1.Taint { return corev1.Taint{Key: k, Effect: corev1.TaintEffectNoSchedule} }
	for name, test := range map[string]struct {
		change func(*v1beta1.MachineSpec)
		want
	}{
		"valid": {func(*v1beta1.MachineSpec) {}, want{}},
		"Machinist's own keys on the Node": {func(s *v1beta1.MachineSpec) {
			s.Node.Labels = map[string]string{v1beta1.NodeLabelMachine: "x", "mine": "x"}
			s.Node.Annotations = map[string]string{v1beta1.NodeAnnotationUpdateResult: "succeeded", "mine": "x"}
		}, want{errors: []string{
			"spec.node.annotations[machinist.dev/update-result]: Forbidden",
			"spec.node.labels[machinist.dev/machine]: Forbidden",
		}}},
		"Machinist's own taints": {func(s *v1beta1.MachineSpec) {
			s.Node.Taints = []corev1.Taint{key("mine"), key(v1beta1.NodeTaintOutdated)}
			s.Node.StartupTaints = []corev1.Taint{key(v1beta1.NodeTaintUninitialized)}
		}, want{errors: []string{"spec.node.startupTaints[0].key: Forbidden", "spec.node.taints[1].key: Forbidden"}}},
		"keys of Kubernetes": {func(s *v1beta1.MachineSpec) {
			s.Node.Labels = map[string]string{corev1.LabelHostname: "x"}
			s.Node.Taints = []corev1.Taint{key(corev1.TaintNodeNotReady)}
		}, want{errors: []string{"spec.node.labels[kubernetes.io/hostname]: Forbidden"},
			warnings: []string{"spec.node.taints[0].key: "}}},
		"a large providerSpec": {func(s *v1beta1.MachineSpec) {
			s.ClassRef, s.Provider = nil, "sim"
			s.ProviderSpec = &runtime.RawExtension{Raw: make([]byte, provider.MaxSpecBytes+1)}
		}, want{errors: []string{"spec.providerSpec: Too long: may not be more than 65536 bytes"}}},
		"a drain timeout of 0": {func(s *v1beta1.MachineSpec) { s.Timeouts.Drain = zero },
			want{warnings: []string{"spec.timeouts.drain: "}}},
		"a short creation timeout": {func(s *v1beta1.MachineSpec) { s.Timeouts.Creation = zero },
			want{warnings: []string{"spec.timeouts.creation: 0s is less"}}},
		"a creation timeout of a minute": {func(s *v1beta1.MachineSpec) { s.Timeouts.Creation = minute }, want{}},
		"a class that does not exist": {func(s *v1beta1.MachineSpec) { s.ClassRef.Name = "large" },
			want{warnings: []string{"spec.classRef.name: the MachineClass large does not exist"}}},
		"adoption that the class does not allow": {func(s *v1beta1.MachineSpec) { s.ProviderID = "sim:///1" },
			want{errors: []string{"spec.providerID: Forbidden: the MachineClass small does not allow"}}},
		"adoption with a class that does not exist": {func(s *v1beta1.MachineSpec) {
			s.ProviderID, s.ClassRef.Name = "sim:///1", "large"
		},
			want{warnings: []string{"spec.classRef.name: "}}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &v1beta1.Machine{Spec: v1beta1.MachineSpec{ClassRef: classRef()}}
			test.change(&m.Spec)
			test.check(t, ValidateMachine(m, true, environment("")))
		})
	}
	m := &v1beta1.Machine{Spec: v1beta1.MachineSpec{ClassRef: classRef(), ProviderID: "sim:///1"}}
	want{}.check(t, ValidateMachine(m, true, environment(v1beta1.AdoptionAllow)))
	// The provider records the instance ID with an update.
	want{}.check(t, ValidateMachine(m, false, environment("")))
}

// An attacker creates Machines whose Nodes would get certificates with the names of the API server or of local servers.
//
// Rule: reserved-node-names-refused.
func TestAttackMachineWithNameOfAPIServer(t *testing.T) {
	for name, refused := range map[string]bool{
		"kubernetes": true, "kubernetes.default": true, "kubernetes.default.svc.cluster.local": true, "localhost": true,
		"web.localhost": true, "kubernetes-1": false, "kubernetes.example": false, "localhost-1": false,
	} {
		m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
		var w want
		if refused {
			w.errors = []string{"metadata.name: Forbidden: "}
		}
		w.check(t, ValidateMachine(m, true, Environment{}))
		// An existing Machine must stay changeable, so that its finalizers can be removed.
		want{}.check(t, ValidateMachine(m, false, Environment{}))
	}
}

// Rule: version-skew-waits.
func TestUnsupportedVersionIsAWarning(t *testing.T) {
	server := "v1.36.3"
	s := Environment{ServerVersion: func() string { return server }}
	spec := template()
	spec.Spec.Version = "v1.99.0"
	d, set := deploymentNamed("a"), &v1beta1.MachineSet{Spec: v1beta1.MachineSetSpec{Template: spec}}
	d.Spec.Template = spec
	m := &v1beta1.Machine{Spec: v1beta1.MachineSpec{Version: "v1.99.0"}}
	all := func(warnings ...string) {
		t.Helper()
		want{warnings: warnings}.check(t, ValidateMachine(m, true, s))
		for i := range warnings {
			warnings[i] = strings.Replace(warnings[i], "spec.", "spec.template.spec.", 1)
		}
		want{warnings: warnings}.check(t, ValidateDeployment(d, s))
		want{warnings: warnings}.check(t, ValidateSet(set, s))
	}
	all("spec.version: version v1.99.0 is newer than v1.36.3")
	server = ""
	all()
	server = "v1.99.1"
	all()
	s.ServerVersion = nil
	all()

	s.ServerVersion = func() string { return "v1.36.3" }
	owner := *metav1.NewControllerRef(d, v1beta1.GroupVersion.WithKind("MachineDeployment"))
	set.OwnerReferences, m.OwnerReferences = []metav1.OwnerReference{owner}, []metav1.OwnerReference{owner}
	want{}.check(t, ValidateSet(set, s)) // An owned set gets no warning, because its owner gets the warning.
	want{}.check(t, ValidateMachine(m, true, s))
	d.Annotations = map[string]string{v1beta1.AnnotationAllowVersionSkew: ""}
	want{}.check(t, ValidateDeployment(d, s))
}

// Rule: manager-webhook-refuses.
func TestTemplate(t *testing.T) {
	annotated := func(keys ...string) func(*v1beta1.MachineTemplateSpec) {
		return func(t *v1beta1.MachineTemplateSpec) {
			t.ObjectMeta.Annotations = map[string]string{}
			for _, k := range keys {
				t.ObjectMeta.Annotations[k] = ""
			}
		}
	}
	at := func(k, why string) string {
		return fmt.Sprintf("spec.template.metadata.annotations[%s]: Forbidden: %s", k, why)
	}
	for name, test := range map[string]struct {
		change func(*v1beta1.MachineTemplateSpec)
		want
	}{
		"valid":    {func(*v1beta1.MachineTemplateSpec) {}, want{}},
		"preserve": {annotated(v1beta1.AnnotationPreserve, v1beta1.AnnotationSkipDrain), want{}},
		"marks": {annotated(v1beta1.AnnotationDeleteMachine),
			want{errors: []string{at(v1beta1.AnnotationDeleteMachine,
				"with this annotation, every machine of the template would be deleted first")}}},
		"force": {annotated(v1beta1.AnnotationForceDelete),
			want{errors: []string{at(v1beta1.AnnotationForceDelete,
				"with this annotation, every machine of the template would be deleted without a drain")}}},
		"remediation": {annotated(v1beta1.AnnotationRemediate),
			want{errors: []string{at(v1beta1.AnnotationRemediate,
				"with this annotation, every machine of the template would be replaced")}}},
		"records": {annotated(v1beta1.AnnotationPreservedUntil, v1beta1.AnnotationMoveTo, v1beta1.AnnotationReceiveFrom,
			v1beta1.AnnotationLastAppliedTemplate),
			want{errors: []string{at(v1beta1.AnnotationPreservedUntil, ""), at(v1beta1.AnnotationMoveTo, ""),
				at(v1beta1.AnnotationReceiveFrom, ""), at(v1beta1.AnnotationLastAppliedTemplate, "")}}},
		"labels": {func(t *v1beta1.MachineTemplateSpec) {
			t.ObjectMeta.Labels[v1beta1.LabelMachineSet] = "x"
			t.ObjectMeta.Labels[v1beta1.LabelMachineDeployment] = "x"
		}, want{errors: []string{"spec.template.metadata.labels[machinist.dev/machine-deployment]: Forbidden",
			"spec.template.metadata.labels[machinist.dev/machine-set]: Forbidden"}}},
		"the spec": {func(t *v1beta1.MachineTemplateSpec) {
			t.Spec.Node.Labels = map[string]string{v1beta1.NodeLabelMachine: "x"}
			t.Spec.Timeouts.Drain = zero
			t.Spec.ClassRef.Name = "large"
		}, want{
			errors:   []string{"spec.template.spec.node.labels[machinist.dev/machine]: Forbidden"},
			warnings: []string{"spec.template.spec.classRef.name: ", "spec.template.spec.timeouts.drain: "},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d, s := deploymentNamed("d"), setNamed("s")
			test.change(&d.Spec.Template)
			test.change(&s.Spec.Template)
			test.check(t, ValidateDeployment(d, environment("")))
			test.check(t, ValidateSet(s, environment("")))
		})
	}
	d := deploymentNamed("d")
	d.Spec.Selector.MatchLabels = map[string]string{v1beta1.LabelTemplateHash: "x"}
	d.Spec.Template.ObjectMeta.Labels = d.Spec.Selector.MatchLabels
	want{errors: []string{"spec.selector.matchLabels[machinist.dev/template-hash]: Forbidden",
		"spec.template.metadata.labels[machinist.dev/template-hash]: Forbidden"}}.check(t, ValidateDeployment(d, environment("")))

	// The deployment writes these labels to its set.
	owned := setNamed("s")
	owned.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineDeployment", Name: "d", Controller: ptr.To(true)}}
	owned.Spec.Template.ObjectMeta.Labels[v1beta1.LabelMachineDeployment] = "d"
	want{}.check(t, ValidateSet(owned, environment("", claim("MachineDeployment", "d", "a"))))
	none := intstr.FromInt32(0)
	owned.Spec.Remediation.MaxInFlight = &none
	want{}.check(t, ValidateSet(owned, environment("")))
	alone := setNamed("s")
	alone.Spec.Remediation.MaxInFlight = &none
	want{warnings: []string{"spec.remediation.maxInFlight: with 0, no"}}.check(t, ValidateSet(alone, environment("")))
}

// Rule: unwise-is-warned.
func TestUnwiseDeployments(t *testing.T) {
	percent, number := func(s string) *intstr.IntOrString {
		return ptr.To(intstr.FromString(s))
	}, func(n int) *intstr.IntOrString { return ptr.To(intstr.FromInt(n)) }
	rolling := func(kind v1beta1.DeploymentStrategyType, v *intstr.IntOrString) func(*v1beta1.MachineDeploymentSpec) {
		return func(s *v1beta1.MachineDeploymentSpec) {
			s.Strategy = v1beta1.DeploymentStrategy{Type: kind, RollingUpdate: &v1beta1.RollingUpdate{MaxUnavailable: v}}
		}
	}
	inPlace := func(kind v1beta1.DeploymentStrategyType, v *intstr.IntOrString) func(*v1beta1.MachineDeploymentSpec) {
		return func(s *v1beta1.MachineDeploymentSpec) {
			s.Strategy = v1beta1.DeploymentStrategy{Type: kind, InPlace: &v1beta1.InPlaceUpdate{MaxUnavailable: v}}
		}
	}
	remediation := func(v *intstr.IntOrString) func(*v1beta1.MachineDeploymentSpec) {
		return func(s *v1beta1.MachineDeploymentSpec) { s.Remediation.MaxInFlight = v }
	}
	for name, test := range map[string]struct {
		change  func(*v1beta1.MachineDeploymentSpec)
		warning string
	}{
		"all machines unavailable": {rolling(v1beta1.StrategyRollingUpdate, percent("100%")),
			"spec.strategy.rollingUpdate.maxUnavailable: "},
		"all machines unavailable with the default strategy": {rolling("", percent("100%")), "spec.strategy.rollingUpdate.maxUnavailable: "},
		"99% unavailable": {rolling(v1beta1.StrategyRollingUpdate, percent("99%")), ""},
		"a number":        {rolling(v1beta1.StrategyRollingUpdate, number(100)), ""},
		"rollingUpdate with another strategy": {rolling(v1beta1.StrategyRecreate, percent("100%")),
			"spec.strategy.rollingUpdate: the strategy Recreate does not use this field"},
		"all updated at once": {inPlace(v1beta1.StrategyInPlace, percent("100%")),
			"spec.strategy.inPlace.maxUnavailable: "},
		"a few updated at once": {inPlace(v1beta1.StrategyInPlace, percent("10%")), ""},
		"in place with another strategy": {inPlace(v1beta1.StrategyRollingUpdate, nil),
			"spec.strategy.inPlace: the strategy RollingUpdate does not use this field"},
		"no remediation":                 {remediation(number(0)), "spec.remediation.maxInFlight: with 0, no"},
		"no remediation as a percentage": {remediation(percent("0%")), "spec.remediation.maxInFlight: with 0%, no"},
		"remediation of all at once":     {remediation(percent("100%")), "spec.remediation.maxInFlight: with 100%, all"},
		"remediation of a few":           {remediation(number(2)), ""},
		"no revision to roll back to": {func(s *v1beta1.MachineDeploymentSpec) {
			s.RevisionHistoryLimit = ptr.To[int32](0)
		}, "spec.revisionHistoryLimit: "},
		"one revision to roll back to": {func(s *v1beta1.MachineDeploymentSpec) {
			s.RevisionHistoryLimit = ptr.To[int32](1)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d, w := deploymentNamed("d"), want{}
			test.change(&d.Spec)
			if test.warning != "" {
				w.warnings = []string{test.warning}
			}
			w.check(t, ValidateDeployment(d, environment("")))
		})
	}
}

// Rule: manager-webhook-refuses.
func TestRolloutStops(t *testing.T) {
	const partition, pause = "spec.strategy.rollingUpdate.partition", "spec.strategy.rollingUpdate.pauseAfter.machines"
	group := map[string]string{v1beta1.AutoscalerMinSizeAnnotation: "1", v1beta1.AutoscalerMaxSizeAnnotation: "6"}
	for name, test := range map[string]struct {
		replicas    *int32
		update      v1beta1.RollingUpdate
		strategy    v1beta1.DeploymentStrategyType
		annotations map[string]string
		want        want
	}{
		"partition below replicas":   {replicas: ptr.To[int32](3), update: v1beta1.RollingUpdate{Partition: 2}},
		"partition equals replicas":  {replicas: ptr.To[int32](3), update: v1beta1.RollingUpdate{Partition: 3}},
		"replicas are not known yet": {update: v1beta1.RollingUpdate{Partition: 3}},
		"partition above replicas": {replicas: ptr.To[int32](3), update: v1beta1.RollingUpdate{Partition: 4},
			want: want{errors: []string{partition + ": Invalid value: 4: partition must not be above spec.replicas, which is 3"}}},
		"partition above replicas of a node group": {replicas: ptr.To[int32](3), update: v1beta1.RollingUpdate{Partition: 4},
			annotations: group, want: want{warnings: []string{partition + ": 4 is above spec.replicas, which is 3 now"}}},
		"pause in the middle": {replicas: ptr.To[int32](3), update: v1beta1.RollingUpdate{
			PauseAfter: &v1beta1.RolloutPause{Machines: 2}}},
		"pause after all machines": {replicas: ptr.To[int32](3), update: v1beta1.RollingUpdate{Partition: 1,
			PauseAfter: &v1beta1.RolloutPause{Machines: 2}}, want: want{warnings: []string{pause + ": a rollout updates at most 2"}}},
		"another strategy": {replicas: ptr.To[int32](3), update: v1beta1.RollingUpdate{Partition: 4},
			strategy: v1beta1.StrategyOnDelete, want: want{warnings: []string{
				"spec.strategy.rollingUpdate: the strategy OnDelete does not use this field"}}},
	} {
		t.Run(name, func(t *testing.T) {
			d := deploymentNamed("d")
			d.Annotations, d.Spec.Replicas = test.annotations, test.replicas
			d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: test.strategy, RollingUpdate: &test.update}
			test.want.check(t, ValidateDeployment(d, environment("")))
		})
	}
}

// Rule: hibernation-not-autoscaled.
func TestHibernatedNodeGroups(t *testing.T) {
	group := map[string]string{v1beta1.AutoscalerMinSizeAnnotation: "1", v1beta1.AutoscalerMaxSizeAnnotation: "6"}
	for name, test := range map[string]struct {
		annotations map[string]string
		want        want
	}{
		"no node group": {},
		"a node group":  {group, want{errors: []string{"spec.hibernated: Forbidden: the cluster-autoscaler scales this object"}}},
	} {
		t.Run(name, func(t *testing.T) {
			d := deploymentNamed("d")
			d.Annotations, d.Spec.Hibernated = test.annotations, true
			test.want.check(t, ValidateDeployment(d, environment("")))
		})
	}
}

// Rule: unwise-is-warned.
func TestOverlap(t *testing.T) {
	own, other := claim("MachineDeployment", "d", "a"), claim("MachineSet", "d", "a")
	wide := Claim{Kind: "MachineSet", Name: "wide", Labels: map[string]string{"pool": "z"},
		Selector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: metav1.LabelSelectorOpExists}},
		}}
	begin := "spec.selector: the selector overlaps with the machines or selectors of other owners: "
	for name, test := range map[string]struct {
		claims  []Claim
		warning string
	}{
		"the same object":        {[]Claim{own}, ""},
		"another pool":           {[]Claim{claim("MachineSet", "other", "b")}, ""},
		"a set of the same name": {[]Claim{own, other}, begin + "MachineSet d. Give"},
		"a set that selects all": {[]Claim{wide}, begin + "MachineSet wide. Give"},
		"five owners": {[]Claim{claim("MachineSet", "1", "a"), claim("MachineSet", "2", "a"), claim("MachineSet", "3", "a"),
			claim("MachineSet", "4", "a"), claim("MachineSet", "5", "a")},
			begin + "MachineSet 1, MachineSet 2, MachineSet 3, 2 more. Give"},
		"an invalid selector": {[]Claim{{Kind: "MachineSet", Name: "x", Selector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Near"}}}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := want{}
			if test.warning != "" {
				w.warnings = []string{test.warning}
			}
			w.check(t, ValidateDeployment(deploymentNamed("d"), environment("", test.claims...)))
		})
	}
	want{warnings: []string{begin + "MachineDeployment d. Give"}}.check(t, ValidateSet(setNamed("d"), environment("", own, other)))
}

// Rules: manager-webhook-refuses, unwise-is-warned.
func TestHealthCheck(t *testing.T) {
	condition := func(kind string, status corev1.ConditionStatus,
		timeout *metav1.Duration) []v1beta1.UnhealthyNodeCondition {
		return []v1beta1.UnhealthyNodeCondition{{Type: corev1.NodeConditionType(kind), Status: status, Timeout: *timeout}}
	}
	good := condition("Ready", corev1.ConditionUnknown, minute)
	template := func(kind string, timeout *metav1.Duration) v1beta1.MachineHealthCheckSpec {
		return v1beta1.MachineHealthCheckSpec{UnhealthyNodeConditions: good, Remediation: v1beta1.HealthCheckRemediation{
			Type: v1beta1.RemediationExternal, Timeout: timeout, TemplateRef: &v1beta1.RemediationTemplateReference{
				APIVersion: "fencing.example.com/v1", Kind: kind, Namespace: "fencing", Name: "default"}}}
	}
	for name, test := range map[string]struct {
		spec v1beta1.MachineHealthCheckSpec
		want
	}{
		"valid": {v1beta1.MachineHealthCheckSpec{UnhealthyNodeConditions: good}, want{}},
		"a condition with a domain": {v1beta1.MachineHealthCheckSpec{UnhealthyNodeConditions: condition("example.com/Disk",
			corev1.ConditionTrue, minute)}, want{}},
		"Ready is True": {v1beta1.MachineHealthCheckSpec{UnhealthyNodeConditions: condition("Ready",
			corev1.ConditionTrue, minute)},
			want{errors: []string{`spec.unhealthyNodeConditions[0].status: Invalid value: "True"`}}},
		"an invalid condition type": {v1beta1.MachineHealthCheckSpec{UnhealthyNodeConditions: condition("not ready",
			corev1.ConditionTrue, minute)},
			want{errors: []string{`spec.unhealthyNodeConditions[0].type: Invalid value: "not ready"`}}},
		"a timeout of 0": {v1beta1.MachineHealthCheckSpec{UnhealthyNodeConditions: condition("Ready",
			corev1.ConditionFalse, zero)}, want{warnings: []string{"spec.unhealthyNodeConditions[0].timeout: "}}},
		"no conditions": {v1beta1.MachineHealthCheckSpec{},
			want{warnings: []string{"spec.unhealthyNodeConditions: "}}},
		"only nodeStartupTimeout": {v1beta1.MachineHealthCheckSpec{NodeStartupTimeout: minute}, want{}},
		"maxUnhealthy of 100%": {v1beta1.MachineHealthCheckSpec{UnhealthyNodeConditions: good,
			MaxUnhealthy: ptr.To(intstr.FromString("100%"))}, want{warnings: []string{"spec.maxUnhealthy: with 100%"}}},
		"maxUnhealthy of 0": {v1beta1.MachineHealthCheckSpec{UnhealthyNodeConditions: good,
			MaxUnhealthy: ptr.To(intstr.FromInt(0))}, want{warnings: []string{"spec.maxUnhealthy: with 0, no machine"}}},
		"a machine condition with a timeout of 0": {v1beta1.MachineHealthCheckSpec{
			UnhealthyMachineConditions: []v1beta1.UnhealthyMachineCondition{{Type: "GPUHealthy", Status: metav1.ConditionFalse}}},
			want{warnings: []string{"spec.unhealthyMachineConditions[0].timeout: "}}},
		"a machine condition of Machinist": {v1beta1.MachineHealthCheckSpec{UnhealthyNodeConditions: good,
			UnhealthyMachineConditions: []v1beta1.UnhealthyMachineCondition{{Type: "RemediationRequested",
				Status: metav1.ConditionTrue, Timeout: *minute}}},
			want{errors: []string{`spec.unhealthyMachineConditions[0].type: Invalid value: "RemediationRequested"`}}},
		"an invalid range": {v1beta1.MachineHealthCheckSpec{UnhealthyNodeConditions: good, UnhealthyRange: "[5-3]"},
			want{errors: []string{`spec.unhealthyRange: Invalid value: "[5-3]": 5 is greater than 3`}}},
		"a range of 0": {v1beta1.MachineHealthCheckSpec{UnhealthyNodeConditions: good, UnhealthyRange: "[0-0]"},
			want{warnings: []string{"spec.unhealthyRange: with [0-0], no machine"}}},
		"a range instead of maxUnhealthy": {v1beta1.MachineHealthCheckSpec{UnhealthyNodeConditions: good,
			UnhealthyRange: "[3-5]", MaxUnhealthy: ptr.To(intstr.FromInt(0))}, want{}},
		"a remediation of a permitted kind": {template("PowerCycleTemplate", minute), want{}},
		"a remediation without a timeout": {template("PowerCycleTemplate", nil),
			want{warnings: []string{"spec.remediation.timeout: without a timeout"}}},
		"a remediation of another kind": {template("SelfNodeRemediationTemplate", minute),
			want{errors: []string{`spec.remediation.templateRef.kind: Invalid value: "SelfNodeRemediationTemplate": ` +
				`the manager does not permit remediations of kind SelfNodeRemediation.fencing.example.com: ` +
				`add SelfNodeRemediation.fencing.example.com to its flag --remediation-kinds`}}},
	} {
		t.Run(name, func(t *testing.T) {
			test.check(t, ValidateHealthCheck(&v1beta1.MachineHealthCheck{Spec: test.spec},
				[]schema.GroupKind{{Group: "fencing.example.com", Kind: "PowerCycle"}}))
		})
	}
}

// Rule: manager-webhook-refuses.
func TestClass(t *testing.T) {
	capacity := func(c v1beta1.ClassCapacity) *v1beta1.MachineClass {
		return &v1beta1.MachineClass{Spec: v1beta1.MachineClassSpec{Capacity: &c}}
	}
	want{}.check(t, ValidateClass(&v1beta1.MachineClass{}))
	want{}.check(t, ValidateClass(capacity(v1beta1.ClassCapacity{InstanceType: "m5.large", Region: "eu-1", Zone: "eu-1_a",
		Architecture: "arm64"})))
	want{errors: []string{
		`spec.capacity.architecture: Invalid value: "arm 64"`, `spec.capacity.instanceType: Invalid value: "m5/large"`,
		`spec.capacity.region: Invalid value: "-eu"`, `spec.capacity.zone: Invalid value: "a,b"`,
	}}.check(t, ValidateClass(capacity(v1beta1.ClassCapacity{InstanceType: "m5/large", Region: "-eu", Zone: "a,b",
		Architecture: "arm 64"})))
}
