package manifests

import (
	"fmt"
	"maps"
	"math"

	"machinist.dev/machinist/api/v1beta1"
)

func fleet(kind, sample string) []InvalidObject {
	spec := func(field string, value any) Changes { return Changes{"spec/" + field: value} }
	const replicas, template = "spec.replicas", "spec.template"
	all := table(BySchema, kind, sample,
		entry{"with 100001 replicas", spec("replicas", 100001), reports(replicas)},
		entry{"with 2^31-1 replicas", spec("replicas", math.MaxInt32), reports(replicas)},
		entry{"with 2^63-1 replicas", spec("replicas", int64(math.MaxInt64)), reports(replicas)},
		entry{"with -1 replicas", spec("replicas", -1), reports(replicas)},
		entry{"with 0.5 replicas", spec("replicas", 0.5), reports(replicas)},
		entry{"with replicas that are a string", spec("replicas", "3"), reports(replicas)},
		entry{"with minReadySeconds of -1", spec("minReadySeconds", -1), reports("spec.minReadySeconds")},
		entry{"with minReadySeconds of two days", spec("minReadySeconds", 2*86400), reports("spec.minReadySeconds")},
		entry{"with an unknown deletePolicy", spec("deletePolicy", "Cheapest"), reports("spec.deletePolicy")},
		entry{"with maxInFlight over 100 percent", spec("remediation/maxInFlight", "200%"),
			reports("spec.remediation.maxInFlight")},
		entry{"with a negative maxInFlight", spec("remediation/maxInFlight", -1), reports("spec.remediation.maxInFlight")},
		entry{"with a providerID in its template", spec("template/spec/providerID", "sim:///vm-1"),
			reports(template + ".spec.providerID")},
		entry{"without a template", spec("template", nil), reports(template)},
		entry{"without a class", spec("template/spec", map[string]any{}),
			reports(template+".spec", "exactly one of spec.placement, template.spec.classRef")},
		entry{"with a template with an invalid label value", spec("template/metadata/labels/tier", "a b"),
			reports(template + ".metadata.labels.tier")},
		entry{"with a template with an invalid label key", spec("template/metadata/labels/a b", "x"),
			reports(template + ".metadata.labels")},
		entry{"with a template with an invalid annotation key", spec("template/metadata/annotations/a b", "x"),
			reports(template + ".metadata.annotations")},
		entry{"with a template with an annotation of 16 KiB", spec("template/metadata/annotations/note", a(16385)),
			reports(template + ".metadata.annotations")},
		entry{"with a node label key with a blank", spec("template/spec/node/labels", map[string]any{"my pool": "a"}),
			reports(template + ".spec.node.labels")},
		entry{"with a timeout in words", spec("template/spec/timeouts/creation", "3 weeks"),
			reports(template + ".spec.timeouts.creation")},
		entry{"with a version that is a word", spec("template/spec/version", "latest"), reports(template + ".spec.version")},
		entry{"with a hook without a domain", spec("template/spec/lifecycleHooks/preDrain", []any{hook("backup", "backup")}),
			reports(template + ".spec.lifecycleHooks.preDrain[0].name")},
	)
	all = append(all, selectors(kind, sample)...)
	all = append(all, placements(kind, sample)...)
	all = append(all, annotations(kind, sample)...)
	return append(all, reservedKeys(kind, sample, "spec/template/spec")...)
}

// placements returns invalid placements. Each placement replaces the class in the template.
func placements(kind, sample string) []InvalidObject {
	domain := func(name string, fields ...any) map[string]any {
		d := map[string]any{"name": name, "options": []any{map[string]any{"className": name}}}
		for i := 0; i < len(fields); i += 2 {
			d[fields[i].(string)] = fields[i+1]
		}
		return d
	}
	several := func(n int) (list []any) {
		for i := range n {
			list = append(list, domain(fmt.Sprintf("d%d", i)))
		}
		return list
	}
	options := func(n int) (list []any) {
		for i := range n {
			list = append(list, map[string]any{"className": fmt.Sprintf("c%d", i)})
		}
		return list
	}
	placement := func(fields map[string]any, domains ...any) Changes {
		value := map[string]any{"domains": domains}
		maps.Copy(value, fields)
		return Changes{"spec/placement": value, "spec/template/spec/classRef": nil}
	}
	const path = "spec.placement"
	invalid := table(BySchema, kind, sample,
		entry{"with a placement and a class", Changes{"spec/placement": map[string]any{"domains": []any{domain("a")}}},
			reports("spec.template.spec", "spec.placement")},
		entry{"with a placement without domains", placement(nil), reports(path + ".domains")},
		entry{"with 33 domains", placement(nil, several(33)...), reports(path+".domains", "32")},
		entry{"with two domains of one name", placement(nil, domain("a"), domain("a")), reports(path + ".domains[1]")},
		entry{"with a domain whose name has a dot", placement(nil, domain("eu.a")), reports(path + ".domains[0].name")},
		entry{"with a domain without options", placement(nil, domain("a", "options", []any{})),
			reports(path + ".domains[0].options")},
		entry{"with a domain with 50 options", placement(nil, domain("a", "options", options(50))),
			reports(path+".domains[0].options", "16")},
		entry{"with a domain with a class twice", placement(nil, domain("a", "options", append(options(1), options(1)...))),
			reports(path + ".domains[0].options[1]")},
		entry{"with a weight of 1001", placement(nil, domain("a", "weight", 1001)), reports(path + ".domains[0].weight")},
		entry{"with a weight in percent", placement(nil, domain("a", "weight", "50%")), reports(path + ".domains[0].weight")},
		entry{"with minReplicas in percent", placement(nil, domain("a", "minReplicas", "50%")),
			reports(path + ".domains[0].minReplicas")},
		entry{"with minReplicas above maxReplicas", placement(nil, domain("a", "minReplicas", 3, "maxReplicas", 2)),
			reports(path+".domains[0].minReplicas", "maxReplicas")},
		entry{"with minReplicas of a domain without weight", placement(nil, domain("a"), domain("b", "minReplicas", 1, "weight", 0)),
			reports(path+".domains[1].minReplicas", "weight")},
		entry{"with a maxSkew of 0", placement(map[string]any{"maxSkew": 0}, domain("a")), reports(path + ".maxSkew")},
		entry{"with a maxSkew in percent", placement(map[string]any{"maxSkew": "10%"}, domain("a")),
			reports(path + ".maxSkew")},
		entry{"with an unknown whenUnsatisfiable", placement(map[string]any{"whenUnsatisfiable": "DoNotSchedule"}, domain("a")),
			reports(path + ".whenUnsatisfiable")},
		entry{"with an unknown rebalance", placement(map[string]any{"rebalance": "Always"}, domain("a")),
			reports(path + ".rebalance")},
	)
	return append(invalid, table(ByManager, kind, sample,
		entry{"with a class in two domains", placement(nil, domain("a"),
			domain("b", "options", []any{map[string]any{"className": "a"}})),
			reports(path + ".domains[1].options[0].className")},
		entry{"with weights of 0 only", placement(nil, domain("a", "weight", 0), domain("b", "weight", 0)),
			reports(path+".domains", "weight")},
	)...)
}

func selectors(kind, sample string) []InvalidObject {
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
		entry{"without a selector", selector(nil), reports(field)},
		entry{"with an empty selector", selector(map[string]any{}), reports(field, "empty")},
		entry{"with a selector with empty parts",
			selector(map[string]any{"matchLabels": map[string]any{}, "matchExpressions": []any{}}), reports(field, "empty")},
		entry{"with a selector with another value", selector(MatchLabels("pool", "b")), reports(field, "matchLabels")},
		entry{"with a selector with another key", selector(MatchLabels("tier", "a")), reports(field, "matchLabels")},
		entry{"with a selector with another key without a value", selector(MatchLabels("tier", "")),
			reports(field, "matchLabels")},
		entry{"with a selector and a template without labels", Changes{"spec/template/metadata": nil},
			reports(field, "matchLabels")},
		entry{"with a selector with an invalid value", selector(MatchLabels("pool", "a b")),
			reports(field + ".matchLabels.pool")},
		entry{"with a selector with an invalid key", selector(MatchLabels("my pool", "a")),
			reports(field + ".matchLabels")},
		entry{"with a selector with In and other values", expression("pool", "In", "b", "c"), reports(field, "matchExpressions")},
		entry{"with a selector with In and another key", expression("tier", "In", "a"), reports(field, "matchExpressions")},
		entry{"with a selector with In without values", expression("pool", "In"), reports(field + ".matchExpressions[0].values")},
		entry{"with a selector with In and an invalid value", expression("pool", "In", "a", "b c"),
			reports(field + ".matchExpressions[0].values[1]")},
		entry{"with a selector with NotIn and the value of the template", expression("pool", "NotIn", "a"),
			reports(field, "matchExpressions")},
		entry{"with a selector with Exists and values", expression("pool", "Exists", "a"),
			reports(field + ".matchExpressions[0].values")},
		entry{"with a selector with Exists and another key", expression("tier", "Exists"), reports(field, "matchExpressions")},
		entry{"with a selector with DoesNotExist and the key of the template", expression("pool", "DoesNotExist"),
			reports(field, "matchExpressions")},
		entry{"with a selector with an unknown operator", expression("pool", "Equals", "a"),
			reports(field + ".matchExpressions[0].operator")},
		entry{"with a selector with an expression with an invalid key", expression("my pool", "Exists"),
			reports(field + ".matchExpressions[0].key")},
	)
}

// annotations returns objects whose annotations for other programs are invalid. It also returns objects with
// annotations and labels that a template must not have.
func annotations(kind, sample string) []InvalidObject {
	const group = "metadata/annotations/machinist.dev~1"
	const minSize, maxSize = group + "cluster-api-autoscaler-node-group-min-size", group +
		"cluster-api-autoscaler-node-group-max-size"
	const min, max = v1beta1.AutoscalerMinSizeAnnotation, v1beta1.AutoscalerMaxSizeAnnotation
	const template = "spec.template.metadata."
	all := table(ByPolicy, kind, sample,
		entry{"with a minimum size above the maximum size", Changes{minSize: "10", maxSize: "9"}, reports(min, "10", "9")},
		entry{"with a negative minimum size", Changes{minSize: "-1", maxSize: "9"}, reports(min)},
		entry{"with a maximum size in words", Changes{minSize: "1", maxSize: "many"}, reports(max, "many")},
		entry{"with a fractional maximum size", Changes{maxSize: "1.5"}, reports(max)},
		entry{"with an empty minimum size", Changes{minSize: ""}, reports(min)},
		entry{"with a blank in the minimum size", Changes{minSize: " 1"}, reports(min)},
		entry{"with a maximum size that is too large", Changes{maxSize: "99999999999999999999"}, reports(max)},
		entry{"with a template with a delete priority in words", Changes{"spec/template/" + group + "delete-priority": "low"},
			reports(template + "annotations[machinist.dev/delete-priority]")},
		entry{"with a template with an unknown value of preserve", Changes{"spec/template/" + group + "preserve": "sometimes"},
			reports(template + "annotations[machinist.dev/preserve]")},
	)
	for _, key := range []string{
		v1beta1.AnnotationPreservedUntil, v1beta1.AnnotationPreservedFrom, v1beta1.AnnotationMoveTo,
		v1beta1.AnnotationReceiveFrom,
		v1beta1.AnnotationLastAppliedTemplate, v1beta1.AnnotationNoCreate, v1beta1.AnnotationSizedFor,
		v1beta1.AnnotationRolloutAfter,
		v1beta1.AnnotationRemediationRetry, v1beta1.AnnotationRevision, v1beta1.AnnotationHashVersion,
		v1beta1.AnnotationPromoted, v1beta1.AnnotationVersionStep,
		v1beta1.AnnotationDeleteMachine, v1beta1.AnnotationForceDelete, v1beta1.AnnotationRemediate,
	} {
		all = append(all, table(ByPolicy, kind, sample, entry{
			"with the annotation " + key + " in its template",
			Changes{"spec/template/metadata/annotations": map[string]any{key: "2026-01-01T00:00:00Z"}},
			reports(template+"annotations", key),
		})...)
	}
	labels := []string{v1beta1.LabelMachineSet, v1beta1.LabelMachineDeployment, v1beta1.LabelProvider,
		v1beta1.LabelPlacementDomain}
	if kind == "MachineDeployment" {
		labels = append(labels, v1beta1.LabelTemplateHash)
		all = append(all, table(ByPolicy, kind, sample, entry{
			"with a selector with the hash of its template",
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
			all = append(all, table(ByManager, kind, sample, entry{
				"with a selector with DoesNotExist and the key " + key,
				Changes{"spec/selector/matchExpressions": []any{map[string]any{"key": key, "operator": "DoesNotExist"}}},
				reports("spec.selector.matchExpressions[0].key", key),
			})...)
		}
	}
	for _, key := range labels {
		all = append(all, table(ByPolicy, kind, sample, entry{
			"with the label " + key + " in its template",
			Changes{"spec/template/metadata/labels": map[string]any{"pool": "a", key: "other"}},
			reports(template+"labels", key),
		})...)
	}
	return all
}

func deployments() []InvalidObject {
	spec := func(field string, value any) Changes { return Changes{"spec/" + field: value} }
	rolling := func(surge, unavailable any) Changes {
		return Changes{"spec/strategy/rollingUpdate/maxSurge": surge,
			"spec/strategy/rollingUpdate/maxUnavailable": unavailable}
	}
	const surge, unavailable = "spec.strategy.rollingUpdate.maxSurge", "spec.strategy.rollingUpdate.maxUnavailable"
	return table(BySchema, "MachineDeployment", Deployment,
		entry{"with maxSurge 2^31", rolling(math.MaxInt32+1, 0), reports(surge)},
		entry{"with maxSurge 0 and maxUnavailable 0", rolling(0, 0), reports(unavailable, "both be 0")},
		entry{"with maxSurge 0% and maxUnavailable 0%", rolling("0%", "0%"), reports(unavailable, "both be 0")},
		entry{"with maxSurge 0 and maxUnavailable 0%", rolling(0, "0%"), reports(unavailable, "both be 0")},
		entry{"with maxSurge 0 and the default of maxUnavailable", rolling(0, nil), reports(unavailable, "both be 0")},
		entry{"with a negative maxSurge", rolling(-1, 1), reports(surge)},
		entry{"with a negative maxUnavailable", rolling(1, -1), reports(unavailable)},
		entry{"with a negative percentage of maxSurge", rolling("-1%", 1), reports(surge)},
		entry{"with maxUnavailable 101%", rolling(1, "101%"), reports(unavailable)},
		entry{"with maxSurge 1000%", rolling("1000%", 1), reports(surge)},
		entry{"with a fractional percentage of maxSurge", rolling("1.5%", 1), reports(surge)},
		entry{"with a percentage of maxSurge without its sign", rolling("1", 1), reports(surge)},
		entry{"with maxSurge in words", rolling("some", 1), reports(surge)},
		entry{"with maxSurge 0.5", rolling(0.5, 1), reports(surge)},
		entry{"with a negative partition", spec("strategy/rollingUpdate/partition", -1),
			reports("spec.strategy.rollingUpdate.partition")},
		entry{"with a partition in percent", spec("strategy/rollingUpdate/partition", "50%"),
			reports("spec.strategy.rollingUpdate.partition")},
		entry{"with a pause after 0 machines", spec("strategy/rollingUpdate/pauseAfter/machines", 0),
			reports("spec.strategy.rollingUpdate.pauseAfter.machines")},
		entry{"with a pause after no number of machines", spec("strategy/rollingUpdate/pauseAfter/duration", "5m"),
			reports("spec.strategy.rollingUpdate.pauseAfter.machines")},
		entry{"with a pause of 0s", Changes{"spec/strategy/rollingUpdate/pauseAfter/machines": 1,
			"spec/strategy/rollingUpdate/pauseAfter/duration": "0s"},
			reports("spec.strategy.rollingUpdate.pauseAfter.duration", "longer than 0s")},
		entry{"with steps without a version of the template", Changes{"spec/versionSteps": steps("v1.35.4"),
			"spec/template/spec/version": nil},
			reports("spec.template.spec.version", "must be set with versionSteps")},
		entry{"with a step of the minor version of the template", Changes{"spec/versionSteps": steps("v1.35.4", "v1.36.0"),
			"spec/template/spec/version": "v1.36.3"},
			reports("spec.versionSteps", "v1.36.0, must be of a lower minor version than template.spec.version, which is v1.36.3")},
		entry{"with a step beyond the template", Changes{"spec/versionSteps": steps("v1.37.0"),
			"spec/template/spec/version": "v1.36.3"}, reports("spec.versionSteps", "v1.37.0")},
		entry{"with a step of a later major version", Changes{"spec/versionSteps": steps("v2.0.0"),
			"spec/template/spec/version": "v1.36.3"}, reports("spec.versionSteps", "v2.0.0")},
		entry{"with steps out of order", Changes{"spec/versionSteps": steps("v1.35.4", "v1.34.2"),
			"spec/template/spec/version": "v1.36.3"},
			reports("spec.versionSteps", "the steps from v1.35.4 to v1.34.2 must be in ascending order")},
		entry{"with two steps of a minor version", Changes{"spec/versionSteps": steps("v1.34.2", "v1.35.1", "v1.35.4"),
			"spec/template/spec/version": "v1.36.3"},
			reports("spec.versionSteps", "the steps from v1.34.2 to v1.35.4 must have at most one version of each minor version")},
		entry{"with a step that is no complete version", Changes{"spec/versionSteps": steps("v1.35"),
			"spec/template/spec/version": "v1.36.3"}, reports("spec.versionSteps[0].version", "v1.35")},
		entry{"with 17 steps", Changes{"spec/versionSteps": manySteps(17), "spec/template/spec/version": "v1.36.3"},
			reports("spec.versionSteps")},
		entry{"with a step with an invalid class", Changes{"spec/versionSteps": []any{map[string]any{"version": "v1.35.4",
			"className": "Small"}}, "spec/template/spec/version": "v1.36.3"}, reports("spec.versionSteps[0].className")},
		entry{"with a class of a step and a placement", Changes{"spec/versionSteps": []any{map[string]any{"version": "v1.35.4",
			"className": "small"}}, "spec/template/spec/version": "v1.36.3", "spec/template/spec/classRef": nil,
			"spec/placement": map[string]any{"domains": []any{map[string]any{"name": "a", "options": []any{
				map[string]any{"className": "small-a"}}}}}},
			reports("spec.versionSteps", "className must not be set in a step")},
		entry{"with an unknown strategy", spec("strategy/type", "BlueGreen"), reports("spec.strategy.type")},
		entry{"with an unknown orchestration", spec("strategy/inPlace/orchestration", "Choir"),
			reports("spec.strategy.inPlace.orchestration")},
		entry{"with a negative maxUnavailable in place", spec("strategy/inPlace/maxUnavailable", -1),
			reports("spec.strategy.inPlace.maxUnavailable")},
		entry{"with maxUnavailable 200% in place", spec("strategy/inPlace/maxUnavailable", "200%"),
			reports("spec.strategy.inPlace.maxUnavailable")},
		entry{"with a negative revisionHistoryLimit", spec("revisionHistoryLimit", -1), reports("spec.revisionHistoryLimit")},
		entry{"with revisionHistoryLimit 101", spec("revisionHistoryLimit", 101), reports("spec.revisionHistoryLimit")},
		entry{"with a progress deadline in words", spec("progressDeadline", "ten"), reports("spec.progressDeadline")},
		entry{"with a progress deadline of 200000 hours", spec("progressDeadline", "99999h99999h2h"),
			reports("spec.progressDeadline")},
		entry{"with a progress deadline not longer than minReadySeconds",
			Changes{"spec/progressDeadline": "1m", "spec/minReadySeconds": 60},
			reports("spec.progressDeadline", "minReadySeconds")},
	)
}

func steps(versions ...string) (list []any) {
	for _, v := range versions {
		list = append(list, map[string]any{"version": v})
	}
	return list
}

func manySteps(n int) (list []any) {
	for minor := range n {
		list = append(list, steps(fmt.Sprintf("v1.%d.0", minor))...)
	}
	return list
}

func times() []InvalidObject {
	after := func(value any) Changes { return Changes{"spec/rolloutAfter": value} }
	at := reports("spec.rolloutAfter")
	return table(BySchema, "MachineDeployment", Deployment,
		entry{"with rolloutAfter that is a date", after("2026-01-01"), at},
		entry{"with rolloutAfter without a time zone", after("2026-08-01T12:00:00"), at},
		entry{"with rolloutAfter in lower case", after("2026-08-01t12:00:00z"), at},
		entry{"with rolloutAfter on the 31st of February", after("2026-02-31T12:00:00Z"), at},
		entry{"with rolloutAfter on the 29th of February 2026", after("2026-02-29T12:00:00Z"), at},
		entry{"with rolloutAfter on the 29th of February 2100", after("2100-02-29T12:00:00Z"), at},
		entry{"with rolloutAfter that is a list", after([]string{}), at},
		entry{"with rolloutAfter that is a leap second", after("2016-12-31T23:59:60Z"), at},
		entry{"with rolloutAfter before year 0", after("0000-01-01T00:00:00+01:00"), at},
		entry{"with rolloutAfter after year 9999", after("9999-12-31T23:59:59-01:00"), at},
		entry{"with rolloutAfter that is a number", after(1767225600), at},
		entry{"with an empty rolloutAfter", after(""), at},
	)
}
