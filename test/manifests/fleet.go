package manifests

import (
	"math"

	"machinist.dev/machinist/api/v1beta1"
)

// fleet is what no kind with replicas, a selector and a template may have.
func fleet(kind, sample string) []Bad {
	spec := func(field string, value any) Changes { return Changes{"spec/" + field: value} }
	const replicas, template = "spec.replicas", "spec.template"
	all := table(BySchema, kind, sample,
		row{"of 100001", spec("replicas", 100001), reports(replicas)},
		row{"of 2^31-1", spec("replicas", math.MaxInt32), reports(replicas)},
		row{"of 2^63-1", spec("replicas", int64(math.MaxInt64)), reports(replicas)},
		row{"of -1", spec("replicas", -1), reports(replicas)},
		row{"of a half", spec("replicas", 0.5), reports(replicas)},
		row{"of a string", spec("replicas", "3"), reports(replicas)},
		row{"with minReadySeconds of -1", spec("minReadySeconds", -1), reports("spec.minReadySeconds")},
		row{"with minReadySeconds of two days", spec("minReadySeconds", 2*86400), reports("spec.minReadySeconds")},
		row{"with a deletePolicy that is none", spec("deletePolicy", "Cheapest"), reports("spec.deletePolicy")},
		row{"with a remediation over 100 percent", spec("remediation/maxInFlight", "200%"),
			reports("spec.remediation.maxInFlight")},
		row{"with a negative remediation", spec("remediation/maxInFlight", -1), reports("spec.remediation.maxInFlight")},
		row{"with a providerID in its template", spec("template/spec/providerID", "sim:///vm-1"),
			reports(template + ".spec.providerID")},
		row{"without a template", spec("template", nil), reports(template)},
		row{"without a class", spec("template/spec", map[string]any{}),
			reports(template+".spec", "exactly one of classRef and provider")},
		row{"with a template label value that is none", spec("template/metadata/labels/tier", "a b"),
			reports(template + ".metadata.labels.tier")},
		row{"with a template label key that is none", spec("template/metadata/labels/a b", "x"),
			reports(template + ".metadata.labels")},
		row{"with a template annotation key that is none", spec("template/metadata/annotations/a b", "x"),
			reports(template + ".metadata.annotations")},
		row{"with a template annotation of 16 KiB", spec("template/metadata/annotations/note", a(16385)),
			reports(template + ".metadata.annotations")},
		row{"with a node label key with a blank", spec("template/spec/node/labels", map[string]any{"my pool": "a"}),
			reports(template + ".spec.node.labels")},
		row{"with a timeout in words", spec("template/spec/timeouts/creation", "3 weeks"),
			reports(template + ".spec.timeouts.creation")},
		row{"with a version that is a word", spec("template/spec/version", "latest"), reports(template + ".spec.version")},
		row{"with a hook without a domain", spec("template/spec/lifecycleHooks/preDrain", []any{hook("backup", "backup")}),
			reports(template + ".spec.lifecycleHooks.preDrain[0].name")},
	)
	all = append(all, selectors(kind, sample)...)
	all = append(all, annotations(kind, sample)...)
	return append(all, reserved(kind, sample, "spec/template/spec")...)
}

func selectors(kind, sample string) []Bad {
	selector := func(value any) Changes { return Changes{"spec/selector": value} }
	expression := func(key, operator string, values ...string) Changes {
		e := map[string]any{"key": key, "operator": operator}
		if len(values) > 0 {
			e["values"] = values
		}
		return selector(map[string]any{"matchExpressions": []any{e}})
	}
	const field = "spec.selector"
	return table(BySchema, kind, sample,
		row{"without a selector", selector(nil), reports(field)},
		row{"with an empty selector", selector(map[string]any{}), reports(field, "empty")},
		row{"with a selector of empty parts",
			selector(map[string]any{"matchLabels": map[string]any{}, "matchExpressions": []any{}}), reports(field, "empty")},
		row{"with a selector of another value", selector(MatchLabels("pool", "b")), reports(field, "matchLabels")},
		row{"with a selector of another key", selector(MatchLabels("tier", "a")), reports(field, "matchLabels")},
		row{"with a selector of another key without a value", selector(MatchLabels("tier", "")),
			reports(field, "matchLabels")},
		row{"with a selector and a template without labels", Changes{"spec/template/metadata": nil},
			reports(field, "matchLabels")},
		row{"with a selector with a value that is none", selector(MatchLabels("pool", "a b")),
			reports(field + ".matchLabels.pool")},
		row{"with a selector with a key that is none", selector(MatchLabels("my pool", "a")),
			reports(field + ".matchLabels")},
		row{"with a selector In others", expression("pool", "In", "b", "c"), reports(field, "matchExpressions")},
		row{"with a selector In of another key", expression("tier", "In", "a"), reports(field, "matchExpressions")},
		row{"with a selector In without values", expression("pool", "In"), reports(field + ".matchExpressions[0].values")},
		row{"with a selector In a value that is none", expression("pool", "In", "a", "b c"),
			reports(field + ".matchExpressions[0].values[1]")},
		row{"with a selector NotIn itself", expression("pool", "NotIn", "a"), reports(field, "matchExpressions")},
		row{"with a selector Exists with values", expression("pool", "Exists", "a"),
			reports(field + ".matchExpressions[0].values")},
		row{"with a selector Exists of another key", expression("tier", "Exists"), reports(field, "matchExpressions")},
		row{"with a selector DoesNotExist itself", expression("pool", "DoesNotExist"), reports(field, "matchExpressions")},
		row{"with a selector with an operator that is none", expression("pool", "Equals", "a"),
			reports(field + ".matchExpressions[0].operator")},
		row{"with a selector with an expression key that is none", expression("my pool", "Exists"),
			reports(field + ".matchExpressions[0].key")},
	)
}

// annotations are those of a fleet that others rely on, and those of a template that are no template's.
func annotations(kind, sample string) []Bad {
	const group = "metadata/annotations/machinist.dev~1"
	const minSize, maxSize = group + "cluster-api-autoscaler-node-group-min-size", group +
		"cluster-api-autoscaler-node-group-max-size"
	const min, max = v1beta1.AutoscalerMinSizeAnnotation, v1beta1.AutoscalerMaxSizeAnnotation
	const template = "spec.template.metadata."
	all := table(ByPolicy, kind, sample,
		row{"with min above max", Changes{minSize: "10", maxSize: "9"}, reports(min, "10", "9")},
		row{"with a negative min", Changes{minSize: "-1", maxSize: "9"}, reports(min)},
		row{"with a max in words", Changes{minSize: "1", maxSize: "many"}, reports(max, "many")},
		row{"with a max that is a fraction", Changes{maxSize: "1.5"}, reports(max)},
		row{"with an empty min", Changes{minSize: ""}, reports(min)},
		row{"with a blank in its min", Changes{minSize: " 1"}, reports(min)},
		row{"with a max beyond an int", Changes{maxSize: "99999999999999999999"}, reports(max)},
		row{"with a template with a priority in words", Changes{"spec/template/" + group + "delete-priority": "low"},
			reports(template + "annotations[machinist.dev/delete-priority]")},
		row{"with a template that preserves sometimes", Changes{"spec/template/" + group + "preserve": "sometimes"},
			reports(template + "annotations[machinist.dev/preserve]")},
	)
	for _, key := range []string{
		v1beta1.AnnotationPreservedUntil, v1beta1.AnnotationPreservedFrom, v1beta1.AnnotationMoveTo,
		v1beta1.AnnotationReceiveFrom,
		v1beta1.AnnotationLastAppliedTemplate, v1beta1.AnnotationNoCreate, v1beta1.AnnotationSizedFor,
		v1beta1.AnnotationRolloutAfter,
		v1beta1.AnnotationRemediationRetry, v1beta1.AnnotationRevision, v1beta1.AnnotationHashVersion,
		v1beta1.AnnotationDeleteMachine, v1beta1.AnnotationForceDelete, v1beta1.AnnotationRemediate,
	} {
		all = append(all, table(ByPolicy, kind, sample, row{
			"with the annotation " + key + " in its template",
			Changes{"spec/template/metadata/annotations": map[string]any{key: "2026-01-01T00:00:00Z"}},
			reports(template+"annotations", key),
		})...)
	}
	labels := []string{v1beta1.LabelMachineSet, v1beta1.LabelMachineDeployment, v1beta1.LabelProvider}
	if kind == "MachineDeployment" {
		labels = append(labels, v1beta1.LabelTemplateHash)
		all = append(all, table(ByPolicy, kind, sample, row{
			"that selects by the hash of its template",
			Changes{
				"spec/selector/matchLabels":     map[string]any{"pool": "a", v1beta1.LabelTemplateHash: "x"},
				"spec/template/metadata/labels": map[string]any{"pool": "a", v1beta1.LabelTemplateHash: "x"},
			},
			reports(template+"labels", v1beta1.LabelTemplateHash),
		})...)
	}
	if kind == "MachineDeployment" {
		for _, key := range []string{v1beta1.LabelTemplateHash, v1beta1.LabelMachineSet, v1beta1.LabelProvider,
			v1beta1.AutoscalerDeploymentNameLabel} {
			all = append(all, table(ByManager, kind, sample, row{
				"that selects what does not have " + key,
				Changes{"spec/selector/matchExpressions": []any{map[string]any{"key": key, "operator": "DoesNotExist"}}},
				reports("spec.selector.matchExpressions[0].key", key),
			})...)
		}
	}
	for _, key := range labels {
		all = append(all, table(ByPolicy, kind, sample, row{
			"with the label " + key + " in its template",
			Changes{"spec/template/metadata/labels": map[string]any{"pool": "a", key: "other"}},
			reports(template+"labels", key),
		})...)
	}
	return all
}

func deployments() []Bad {
	spec := func(field string, value any) Changes { return Changes{"spec/" + field: value} }
	rolling := func(surge, unavailable any) Changes {
		return Changes{"spec/strategy/rollingUpdate/maxSurge": surge,
			"spec/strategy/rollingUpdate/maxUnavailable": unavailable}
	}
	const surge, unavailable = "spec.strategy.rollingUpdate.maxSurge", "spec.strategy.rollingUpdate.maxUnavailable"
	return table(BySchema, "MachineDeployment", Deployment,
		row{"with maxSurge 2^31", rolling(math.MaxInt32+1, 0), reports(surge)},
		row{"with neither surge nor unavailable", rolling(0, 0), reports(unavailable, "both be 0")},
		row{"with neither, in percent", rolling("0%", "0%"), reports(unavailable, "both be 0")},
		row{"with 0 and 0%", rolling(0, "0%"), reports(unavailable, "both be 0")},
		row{"with no surge, unavailable left to its default", rolling(0, nil), reports(unavailable, "both be 0")},
		row{"with a negative surge", rolling(-1, 1), reports(surge)},
		row{"with a negative maxUnavailable", rolling(1, -1), reports(unavailable)},
		row{"with a negative percentage", rolling("-1%", 1), reports(surge)},
		row{"with 101 percent", rolling(1, "101%"), reports(unavailable)},
		row{"with 1000 percent", rolling("1000%", 1), reports(surge)},
		row{"with a fraction of a percent", rolling("1.5%", 1), reports(surge)},
		row{"with a percentage without its sign", rolling("1", 1), reports(surge)},
		row{"with a surge in words", rolling("some", 1), reports(surge)},
		row{"with a surge of a half", rolling(0.5, 1), reports(surge)},
		row{"with a strategy that is none", spec("strategy/type", "BlueGreen"), reports("spec.strategy.type")},
		row{"with an orchestration that is none", spec("strategy/inPlace/orchestration", "Choir"),
			reports("spec.strategy.inPlace.orchestration")},
		row{"with a negative number in place", spec("strategy/inPlace/maxUnavailable", -1),
			reports("spec.strategy.inPlace.maxUnavailable")},
		row{"with 200 percent in place", spec("strategy/inPlace/maxUnavailable", "200%"),
			reports("spec.strategy.inPlace.maxUnavailable")},
		row{"with a negative history", spec("revisionHistoryLimit", -1), reports("spec.revisionHistoryLimit")},
		row{"with a history of 101", spec("revisionHistoryLimit", 101), reports("spec.revisionHistoryLimit")},
		row{"with a progress deadline in words", spec("progressDeadline", "ten"), reports("spec.progressDeadline")},
		row{"with a progress deadline of 200000 hours", spec("progressDeadline", "99999h99999h2h"),
			reports("spec.progressDeadline")},
		row{"with a progress deadline not longer than minReadySeconds",
			Changes{"spec/progressDeadline": "1m", "spec/minReadySeconds": 60},
			reports("spec.progressDeadline", "minReadySeconds")},
	)
}

func times() []Bad {
	after := func(value any) Changes { return Changes{"spec/rolloutAfter": value} }
	at := reports("spec.rolloutAfter")
	return table(BySchema, "MachineDeployment", Deployment,
		row{"rolled out after a date", after("2026-01-01"), at},
		row{"rolled out after a time without a zone", after("2026-08-01T12:00:00"), at},
		row{"rolled out after a time in lower case", after("2026-08-01t12:00:00z"), at},
		row{"rolled out after the 31st of February", after("2026-02-31T12:00:00Z"), at},
		row{"rolled out after the 29th of February in another year", after("2026-02-29T12:00:00Z"), at},
		row{"rolled out after the 29th of February 2100", after("2100-02-29T12:00:00Z"), at},
		row{"rolled out after a list", after([]string{}), at},
		row{"rolled out after a leap second", after("2016-12-31T23:59:60Z"), at},
		row{"rolled out after year 0", after("0000-01-01T00:00:00+01:00"), at},
		row{"rolled out after year 9999", after("9999-12-31T23:59:59-01:00"), at},
		row{"rolled out after a number", after(1767225600), at},
		row{"rolled out after an empty string", after(""), at},
	)
}
