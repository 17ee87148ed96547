package source

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// clusterAPIMarks maps annotations of old machines to Machinist's annotations with the same effect.
var clusterAPIMarks = map[string]string{
	clusterAPIDeleteMachine:   v1beta1.AnnotationDeleteMachine,
	clusterAPISkipDrain:       v1beta1.AnnotationSkipDrain,
	clusterAPISkipRemediation: v1beta1.AnnotationSkipRemediation,
	clusterAPIRemediate:       v1beta1.AnnotationRemediate,
}

func (r *clusterAPIReader) deployment() {
	f := r.fields
	if r.staysWithOldSystem(r.templateLabels()) {
		return
	}
	r.checkTopology()
	spec := f.child("spec")
	f.ignore("status")
	cluster := r.clusterName(spec, true)
	deployment := &v1beta1.MachineDeployment{}
	r.metadata.apply(deployment)
	to := &deployment.Spec
	to.Replicas = spec.boundedInt("replicas", v1beta1.DefaultReplicas, 100000)
	to.Template, to.MinReadySeconds = r.template(spec, cluster, true)
	to.Selector = r.selector(spec, to.Template.ObjectMeta.Labels)
	to.Paused = spec.boolean("paused")
	to.RevisionHistoryLimit = spec.historyLimit("revisionHistoryLimit", 1)
	spec.ignore("progressDeadlineSeconds") // The old system ignores the field, too.
	to.ProgressDeadline = asDuration(max(v1beta1.DefaultProgressDeadline,
		time.Duration(to.MinReadySeconds+1)*time.Second))
	r.strategy(spec, to)
	r.rest(spec)
	r.converted.Object = deployment
	r.converted.HealthCheck = noRemediation(deployment.Name+"-none", to.Selector)
}

// strategy reads the strategy, whose fields differ between the versions of the API.
func (r *clusterAPIReader) strategy(spec *fields, to *v1beta1.MachineDeploymentSpec) {
	const after = "A rollout that is planned for this time does not take place. Set rolloutAfter of Machinist's " +
		"MachineDeployment after the migration."
	spec.reportLoss(after, "rolloutAfter")
	rollout := spec.child("rollout")
	rollout.reportLoss(after, "after")
	strategy, remediation := rollout.child("strategy"), spec.child("remediation")
	if spec.has("strategy") {
		strategy = spec.child("strategy")
		remediation = strategy.child("remediation")
	}
	to.Strategy.Type = v1beta1.DeploymentStrategyType(strategy.text("type"))
	rolling := strategy.child("rollingUpdate")
	switch to.Strategy.Type {
	case "", v1beta1.StrategyRollingUpdate:
		to.Strategy = v1beta1.DeploymentStrategy{Type: v1beta1.StrategyRollingUpdate,
			RollingUpdate: rolling.rollingUpdate(v1beta1.DefaultMaxSurge, v1beta1.DefaultMaxUnavailable)}
	case v1beta1.StrategyOnDelete:
		rolling.ignore("maxSurge", "maxUnavailable")
	default:
		strategy.report(provider.FindingBlocker, CodeInvalidValue, "type", "The value must be RollingUpdate or OnDelete.")
	}
	to.DeletePolicy = rolling.deletePolicy("deletePolicy")
	if spec.has("deletion") {
		to.DeletePolicy = spec.child("deletion").deletePolicy("order")
	}
	to.Remediation.MaxInFlight = allMachines() // The default of the old system.
	if remediation.has("maxInFlight") {
		to.Remediation.MaxInFlight = remediation.numberOrPercentage("maxInFlight", 1)
	}
}

// rest reports the fields of deployments and sets that Machinist does not have.
func (r *clusterAPIReader) rest(spec *fields) {
	spec.reportLoss("Machinist names machines after their sets.", "machineNamingStrategy", "machineNaming")
}

func (r *clusterAPIReader) set() {
	f := r.fields
	if r.staysWithOldSystem(r.templateLabels()) {
		return
	}
	ofDeployment := r.ownerOf("MachineDeployment") != ""
	if !ofDeployment {
		r.checkTopology()
	}
	spec := f.child("spec")
	f.ignore("status")
	cluster := r.clusterName(spec, !ofDeployment)
	set := &v1beta1.MachineSet{}
	r.metadata.apply(set)
	to := &set.Spec
	to.Replicas = spec.boundedInt("replicas", v1beta1.DefaultReplicas, 100000)
	to.Template, to.MinReadySeconds = r.template(spec, cluster, !ofDeployment)
	to.Selector = r.selector(spec, to.Template.ObjectMeta.Labels)
	to.DeletePolicy = spec.deletePolicy("deletePolicy")
	if spec.has("deletion") {
		to.DeletePolicy = spec.child("deletion").deletePolicy("order")
	}
	to.Remediation.MaxInFlight = allMachines()
	r.rest(spec)
	r.converted.Object = set
	if r.metadata.controller == nil {
		r.converted.HealthCheck = noRemediation(set.Name+"-none", to.Selector)
	}
}

func (r *clusterAPIReader) templateLabels() map[string]string {
	return r.fields.peek("spec").peek("template").peek("metadata").peek("labels").stringFields()
}

// template converts the template of a deployment or set. The older version of the API has minReadySeconds next to the
// template.
func (r *clusterAPIReader) template(f *fields, cluster string, first bool) (to v1beta1.MachineTemplateSpec,
	ready int32) {
	from := f.child("template")
	to.ObjectMeta = r.templateMeta(from)
	old := from.peek("metadata")
	annotations := old.peek("annotations").stringFields()
	for _, key := range []string{clusterAPISkipDrain, clusterAPISkipRemediation} {
		if _, found := annotations[key]; found {
			from.report(provider.FindingLoss, CodeNotSupported, "metadata.annotations."+key, "New machines of the template "+
				"do not have this annotation. To keep its effect, set %s in the metadata of the template after the migration.",
				clusterAPIMarks[key])
		}
	}
	spec := from.child("spec")
	spec.reportLoss("The instances of a template cannot have the same provider ID.", "providerID")
	r.nodeMetadata(&to.Spec.Node, old.peek("labels").stringFields(), annotations)
	hooks := r.hooks(from, annotations, first)
	r.machineSpec(spec, &to.Spec, annotations)
	to.Spec.LifecycleHooks = hooks
	r.converted.Class = r.templateClass(spec, cluster, spec.text("failureDomain"), first)
	return to, max(*f.boundedInt("minReadySeconds", 0, 86400), *spec.boundedInt("minReadySeconds", 0, 86400))
}

func (r *clusterAPIReader) machine() {
	f := r.fields
	if r.staysWithOldSystem(r.metadata.oldLabels) {
		return
	}
	owned := r.ownerOf("MachineSet") != ""
	if !owned {
		r.checkTopology()
	}
	spec := f.child("spec")
	cluster := r.clusterName(spec, !owned)
	machine := &v1beta1.Machine{}
	annotations := r.metadata.oldAnnotations
	// An autoscaler reads the annotations with the capacity only from deployments and sets.
	r.metadata.annotations = withoutKeys(r.metadata.annotations, []string{v1beta1.AutoscalerCapacityPrefix})
	r.nodeMetadata(&machine.Spec.Node, r.metadata.oldLabels, annotations)
	r.machineSpec(spec, &machine.Spec, annotations)
	spec.ignore("minReadySeconds") // The set decides when a machine is available.
	machine.Spec.LifecycleHooks = r.hooks(f, annotations, true)
	for key, ours := range clusterAPIMarks {
		if _, found := annotations[key]; found {
			r.metadata.later[ours] = "true"
		}
	}
	r.metadata.apply(machine)
	r.converted.Object = machine
	r.converted.Machine = statusWithNodeRef(f, &r.metadata, "")
	r.converted.Machine.ProviderID = spec.text("providerID")
	_, r.converted.Machine.Updating = annotations[clusterAPIUpdating]
	r.machineClass(spec, cluster, owned)
}

// nodeMetadata copies the labels and annotations that the old system copies from a machine to its Node.
func (r *clusterAPIReader) nodeMetadata(to *v1beta1.NodeTemplate, labels, annotations map[string]string) {
	synced := func(domains []string, flag string) func(key, _ string) bool {
		var patterns []*regexp.Regexp
		for _, text := range strings.Split(r.flags[flag], ",") {
			pattern, err := regexp.Compile(text)
			switch {
			case text == "":
			case err != nil:
				r.fields.report(provider.FindingBlocker, CodeInvalidValue, "", "The value of the flag %s of the old process "+
					"is not a regular expression. Correct it in spec.processFlags of the Migration.", flag)
			default:
				patterns = append(patterns, pattern)
			}
		}
		return func(key, _ string) bool {
			domain, _, _ := strings.Cut(key, "/")
			return !slices.ContainsFunc(domains, func(d string) bool {
				return domain == d || d != "node-role.kubernetes.io" && strings.HasSuffix(domain, "."+d)
			}) && !slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(key) })
		}
	}
	to.Labels, to.Annotations = maps.Clone(labels), maps.Clone(annotations)
	maps.DeleteFunc(to.Labels, synced([]string{"node-role.kubernetes.io", "node-restriction.kubernetes.io",
		clusterAPINodeDomain}, clusterAPISyncedLabels))
	maps.DeleteFunc(to.Annotations, synced([]string{clusterAPINodeDomain}, clusterAPISyncedAnnotations))
	to.Labels = withoutReserved(r.fields, "metadata.labels", to.Labels)
	to.Annotations = withoutReserved(r.fields, "metadata.annotations", to.Annotations)
}

func (r *clusterAPIReader) machineSpec(f *fields, to *v1beta1.MachineSpec, annotations map[string]string) {
	f.ignore("clusterName")
	if version := f.text("version"); version != "" {
		if fullVersion.MatchString(version) && len(version) <= 64 {
			to.Version = version
		} else {
			f.report(provider.FindingLoss, CodeInvalidVersion, "version", "The value is not a full version of Kubernetes "+
				"such as v1.36.3, so the machines get no version.")
		}
	}
	to.Node.Taints = f.taints(func(t *fields) bool {
		initial := t.text("propagation") == "OnInitialization"
		if initial {
			t.report(provider.FindingLoss, CodeNotSupported, "propagation", "The old system sets the taint only on new Nodes. "+
				"Machinist would also restore it on other Nodes, so the taint is not copied. Add it to the user data.")
		}
		return initial
	})
	f.reportLoss("Machinist decides by the Node whether a machine is Ready.", "readinessGates")
	r.timeouts(f, to, annotations)
}

// timeouts reads the timeouts of a machine. By default, the old system waits without a limit for the Node, the drain
// and the volumes. The older version of the API has durations, and the newer version has seconds.
func (r *clusterAPIReader) timeouts(f *fields, to *v1beta1.MachineSpec, annotations map[string]string) {
	const deletionDefault = 10 * time.Second
	f.report(provider.FindingNote, CodeCreationTimeout, "", "The old controller waited for the Node without a limit. "+
		"Machinist waits for %s.", noCreationLimit)
	newer := f.child("deletion")
	limit := func(name string) (at *fields, field string, found *time.Duration) {
		at, field, found = f, name, f.duration(name)
		if seconds := newer.number(name + "Seconds"); seconds != nil {
			d := time.Duration(*seconds) * time.Second
			at, field, found = newer, name+"Seconds", &d
		}
		if found != nil && *found < 0 {
			at.report(provider.FindingBlocker, CodeInvalidValue, field, "The timeout must not be negative.")
		}
		return at, field, found
	}
	orNoLimit := func(_ *fields, _ string, d *time.Duration) *metav1.Duration {
		if valueOr(d, 0) <= 0 {
			return asDuration(noLimit)
		}
		return asDuration(*d)
	}
	to.Timeouts = v1beta1.MachineTimeouts{Creation: asDuration(noCreationLimit),
		Drain: orNoLimit(limit("nodeDrainTimeout")), VolumeDetach: orNoLimit(limit("nodeVolumeDetachTimeout"))}
	if _, skips := annotations[clusterAPISkipDetach]; skips {
		to.Timeouts.VolumeDetach = asDuration(0)
	}
	if at, field, d := limit("nodeDeletionTimeout"); d != nil && *d != deletionDefault {
		at.report(provider.FindingLoss, CodeNotSupported, field, "Machinist deletes the Node of a deleted instance, and "+
			"has no timeout for the deletion of the Node.")
	}
}

// hooks reads the lifecycle hooks, which the old system has as annotations. If reported is false, another object has
// the finding.
func (r *clusterAPIReader) hooks(f *fields, annotations map[string]string, reported bool) (all v1beta1.LifecycleHooks) {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		var to *[]v1beta1.LifecycleHook
		switch prefix, _, _ := strings.Cut(key, "/"); prefix {
		case clusterAPIPreDrain:
			to = &all.PreDrain
		case clusterAPIPreTerminate:
			to = &all.PreTerminate
		default:
			continue
		}
		owner := annotations[key]
		if owner == "" {
			owner = "unknown"
		}
		path := "metadata.annotations." + key
		if !qualifiedHook.MatchString(key) || len(owner) > maxHookText || len(*to) == maxHooks {
			f.report(provider.FindingBlocker, CodeInvalidValue, path, "The hook cannot become a lifecycle hook of Machinist. "+
				"Remove the annotation.")
			continue
		}
		*to = append(*to, v1beta1.LifecycleHook{Name: key, Owner: owner})
		if reported {
			f.report(provider.FindingLoss, CodeHookRenamed, path, "The hook becomes a lifecycle hook in the spec of "+
				"Machinist's machine. Its owner looks for the annotation and does not find the hook, so the deletion of the "+
				"machine waits until the hook is removed by hand.")
		}
	}
	return all
}

// deletePolicy reads which machines a set deletes first. By default, the old system chooses at random.
func (f *fields) deletePolicy(name string) v1beta1.DeletePolicy {
	switch policy := v1beta1.DeletePolicy(f.text(name)); policy {
	case "":
		return v1beta1.DeleteRandom
	case v1beta1.DeleteRandom, v1beta1.DeleteNewest, v1beta1.DeleteOldest:
		return policy
	}
	f.report(provider.FindingBlocker, CodeInvalidValue, name, "The value must be Random, Newest or Oldest.")
	return v1beta1.DeleteRandom
}
