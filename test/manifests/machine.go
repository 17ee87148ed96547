package manifests

import (
	"maps"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
)

func name(value string) Changes { return Changes{"metadata/name": value} }

func a(n int) string { return strings.Repeat("a", n) }

func names() []InvalidObject {
	const field = "metadata.name"
	var all []InvalidObject
	for _, kind := range []struct {
		kind, sample, most string
		tooLong            int
	}{
		{"Machine", Machine, "63", 64}, {"MachineSet", Set, "57", 58}, {"MachineDeployment", Deployment, "47", 48},
		{"MachineClass", Class, "253", 254}, {"MachineHealthCheck", HealthCheck, "253", 254},
		{"MachineDisruptionBudget", Budget, "253", 254},
		{"Provider", Provider, "63", 64}, {"Migration", Migration, "40", 41},
	} {
		all = append(all, table(BySchema, kind.kind, kind.sample,
			entry{"without a name", name(""), reports("name")},
			entry{"with a name that is too long", name(a(kind.tooLong)), reports(field, kind.most)},
			entry{"with a name in upper case", name("Pool"), reports(field)},
			entry{"with a name with an underscore", name("a_b"), reports(field)},
			entry{"with an unknown field", Changes{"spec/surprise": "x"}, reports("spec.surprise")},
			entry{"without a spec", Changes{"spec": nil}, reports("spec")},
		)...)
	}
	for kind, sample := range map[string]string{"Machine": Machine, "MachineSet": Set, "MachineDeployment": Deployment} {
		all = append(all, table(BySchema, kind, sample, entry{"with a dot in its name", name("a.b"), reports(field)})...)
	}
	return all
}

func machines() []InvalidObject {
	spec := func(field string, value any) Changes { return Changes{"spec/" + field: value} }
	annotation := func(name, value string) Changes {
		return Changes{"metadata/annotations/machinist.dev~1" + name: value}
	}
	providerLabel := func(value string) Changes { return Changes{"metadata/labels/machinist.dev~1provider": value} }
	const class, providerID, version = "spec.classRef.name", "spec.providerID", "spec.version"
	const priority = "metadata.annotations[machinist.dev/delete-priority]"
	const preserve = "metadata.annotations[machinist.dev/preserve]"
	const label = "metadata.labels[machinist.dev/provider]"
	all := table(BySchema, "Machine", Machine,
		entry{"with neither class nor provider", spec("classRef", nil),
			reports("spec", "exactly one of classRef and provider")},
		entry{"with class and providerSpec", spec("providerSpec", map[string]any{}), reports("spec.providerSpec")},
		entry{"with class and credentialsRef", spec("credentialsRef", Ref("cloud")), reports("spec.credentialsRef")},
		entry{"with class and userDataRef", spec("userDataRef", Ref("boot")), reports("spec.userDataRef")},
		entry{"with a class without a name", spec("classRef", map[string]any{}), reports(class)},
		entry{"with a class with an empty name", spec("classRef", Ref("")), reports(class)},
		entry{"with a class of another namespace", spec("classRef", Ref("other/small")), reports(class)},
		entry{"with a class with a name that is too long", spec("classRef", Ref(a(254))), reports(class)},
		entry{"with a version without v", spec("version", "1.36.3"), reports(version)},
		entry{"with a version without a patch", spec("version", "v1.36"), reports(version, "v1.36", "such as v1.36.3")},
		entry{"with a version that is a word", spec("version", "latest"), reports(version)},
		entry{"with an empty version", spec("version", ""), reports(version)},
		entry{"with a version that is too long", spec("version", "v1.36.3-"+a(64)), reports(version)},
		entry{"with a providerID without a scheme", spec("providerID", "vm-1"), reports(providerID)},
		entry{"with a providerID with a blank", spec("providerID", "sim:///vm 1"), reports(providerID)},
		entry{"with a providerID that is too long", spec("providerID", "sim:///"+a(1024)), reports(providerID)},
		entry{"with a hook without a domain", hooks("preDrain", hook("backup", "backup")),
			reports("spec.lifecycleHooks.preDrain[0].name")},
		entry{"with a hook without an owner", hooks("preTerminate", hook("backup.example.com", "")),
			reports("spec.lifecycleHooks.preTerminate[0].owner")},
		entry{"with a duplicate hook", hooks("preDrain", hook("a.example.com", "x"), hook("a.example.com", "y")),
			reports("spec.lifecycleHooks.preDrain[1]")},
		entry{"with too many hooks",
			hooks("preDrain", many(17, func(i int) any { return hook(a(i+1)+".example.com", "x") })...),
			reports("spec.lifecycleHooks.preDrain")},
	)
	all = append(all, table(ByPolicy, "Machine", Machine,
		entry{"with a delete priority in words", annotation("delete-priority", "low"), reports(priority, "low")},
		entry{"with an empty delete priority", annotation("delete-priority", ""), reports(priority)},
		entry{"with a delete priority that is too large", annotation("delete-priority", "10000000000"), reports(priority)},
		entry{"with a fractional delete priority", annotation("delete-priority", "1.5"), reports(priority)},
		entry{"with an empty value of preserve", annotation("preserve", ""), reports(preserve)},
		entry{"with the value true of preserve", annotation("preserve", "true"), reports(preserve, "true")},
		entry{"with a provider label that is not a DNS label", providerLabel("Sim"), reports(label, "Sim")},
		entry{"with an empty provider label", providerLabel(""), reports(label)},
	)...)
	all = append(all, reservedKeys("Machine", Machine, "spec")...)
	return append(all, table(ByManager, "Machine", Machine,
		entry{"with a providerID although its class does not allow adoption", spec("providerID", "sim://sim-1/nobody"),
			reports(providerID, "adoption")},
	)...)
}

func hooks(phase string, hooks ...any) Changes {
	return Changes{"spec/lifecycleHooks/" + phase: hooks}
}

func hook(name, owner string) any { return map[string]any{"name": name, "owner": owner} }

func many(n int, one func(int) any) []any {
	all := make([]any, n)
	for i := range all {
		all[i] = one(i)
	}
	return all
}

func inline() []InvalidObject {
	spec := func(field string, value any) Changes { return Changes{"spec/" + field: value} }
	all := table(BySchema, "inline Machine", InlineMachine,
		entry{"with a class", spec("classRef", Ref("small")), reports("spec", "exactly one of classRef and provider")},
		entry{"without providerSpec", spec("providerSpec", nil), reports("spec.providerSpec")},
		entry{"without provider", spec("provider", nil), reports("exactly one of classRef and provider")},
		entry{"with an empty provider", spec("provider", ""), reports("spec.provider")},
		entry{"with a provider that is not a label", spec("provider", "Sim.Cloud"), reports("spec.provider")},
		entry{"with a provider that is too long", spec("provider", a(64)), reports("spec.provider")},
		entry{"with a providerSpec that is a list", spec("providerSpec", []string{"small"}), reports("spec.providerSpec")},
		entry{"with credentials without a name", spec("credentialsRef", map[string]any{}),
			reports("spec.credentialsRef.name")},
		entry{"with credentials of another namespace", spec("credentialsRef", Ref("kube-system/cloud")),
			reports("spec.credentialsRef.name")},
		entry{"with user data without a name", spec("userDataRef", map[string]any{"key": "x"}),
			reports("spec.userDataRef.name")},
		entry{"with user data with an invalid key", spec("userDataRef", map[string]any{"name": "boot", "key": "a/b"}),
			reports("spec.userDataRef.key")},
		entry{"with user data with an empty key", spec("userDataRef", map[string]any{"name": "boot", "key": ""}),
			reports("spec.userDataRef.key")},
	)
	all = append(all, table(ByPolicy, "inline Machine", InlineMachine,
		entry{"with another provider label", Changes{"metadata/labels/machinist.dev~1provider": "azure"},
			reports("metadata.labels[machinist.dev/provider]", "azure", "spec.provider")},
	)...)
	all = append(all, providerSpecs("MachineClass", Class, nil, "spec")...)
	all = append(all, providerSpecs("inline Machine", InlineMachine, nil, "spec")...)
	for kind, sample := range fleets {
		inlined := Changes{"spec/template/spec": map[string]any{"provider": "sim", "providerSpec": simMachine(nil)}}
		all = append(all, providerSpecs("inline "+kind, sample, inlined, "spec/template/spec")...)
	}
	// The API server calls the manager's webhook first. This webhook checks the size of a providerSpec, except in a
	// class.
	const big = "with a providerSpec of 1 MiB"
	for i := range all {
		if strings.HasSuffix(all[i].Name, big) && !strings.HasPrefix(all[i].Name, "MachineClass") {
			all[i].By = ByManager
		}
	}
	return all
}

// simMachine returns a valid providerSpec of the simulated cloud, with changes. A nil value removes a field.
func simMachine(changes map[string]any) map[string]any {
	spec := map[string]any{
		"apiVersion": "sim.machinist.dev/v1beta1", "kind": "SimMachine", "region": "sim-1", "instanceType": "small",
		"image": "sim-os-1",
	}
	for field, value := range changes {
		if spec[field] = value; value == nil {
			delete(spec, field)
		}
	}
	return spec
}

// providerSpecs returns objects with a providerSpec that the simulated cloud's driver refuses. at is the path of the
// part of the sample that contains the providerSpec.
func providerSpecs(kind, sample string, base Changes, at string) []InvalidObject {
	field := strings.ReplaceAll(at, "/", ".") + ".providerSpec"
	var all []InvalidObject
	for _, spec := range []struct {
		what  string
		value any
		field string
	}{
		{"that is empty", map[string]any{}, ".apiVersion"},
		{"with another apiVersion", simMachine(map[string]any{"apiVersion": "sim.machinist.dev/v9"}), ".apiVersion"},
		{"with another kind", simMachine(map[string]any{"kind": "AzureMachine"}), ".kind"},
		{"without a region", simMachine(map[string]any{"region": nil}), ".region"},
		{"with an invalid region", simMachine(map[string]any{"region": "../sim-1"}), ".region"},
		{"without an instance type", simMachine(map[string]any{"instanceType": nil}), ".instanceType"},
		{"with an instance type that is a number", simMachine(map[string]any{"instanceType": 4}), ".instanceType"},
		{"without an image", simMachine(map[string]any{"image": ""}), ".image"},
		{"with a non-ASCII zone", simMachine(map[string]any{"zone": "größe"}), ".zone"},
		{"with an unknown field", simMachine(map[string]any{"size": "small"}), ".size"},
		{"with an endpoint of its own", simMachine(map[string]any{"endpoint": "http://169.254.169.254"}), ".endpoint"},
		{"of 1 MiB", simMachine(map[string]any{"blob": strings.Repeat("x", 1<<20)}), ""},
	} {
		changes := Changes{}
		for path, value := range base {
			changes[path] = value
		}
		changes[at+"/providerSpec"] = spec.value
		all = append(all, InvalidObject{
			Name: kind + " with a providerSpec " + spec.what, Sample: sample, Changes: changes,
			Reports: reports(field + spec.field), By: ByProvider,
		})
	}
	return append(all, InvalidObject{
		Name: kind + " with a providerSpec that is a string", Sample: sample, By: BySchema, Reports: reports(field),
		Changes: merged(base, Changes{at + "/providerSpec": "size: small"}),
	})
}

func merged(all ...Changes) Changes {
	sum := Changes{}
	for _, changes := range all {
		for path, value := range changes {
			sum[path] = value
		}
	}
	return sum
}

func durations() []InvalidObject {
	drain := func(value any) Changes { return Changes{"spec/timeouts/drain": value} }
	const field = "spec.timeouts.drain"
	return table(BySchema, "Machine", Machine,
		entry{"with a duration in words", drain("10 minutes"), reports(field)},
		entry{"with a duration in weeks", drain("3 weeks"), reports(field)},
		entry{"with a duration in days", drain("3d"), reports(field)},
		entry{"with a duration without a unit", drain("20"), reports(field)},
		entry{"with a duration that is a number", drain(20), reports(field)},
		entry{"with an empty duration", drain(""), reports(field)},
		entry{"with a negative duration", drain("-5m"), reports(field)},
		entry{"with a duration in nanoseconds", drain("5ns"), reports(field)},
		entry{"with a duration below a millisecond", drain("0.5ms"), reports(field)},
		entry{"with a duration of six digits", drain("100000h"), reports(field)},
		entry{"with a duration with a sum of six digits", drain("99999h99999h"), reports(field)},
		entry{"with a duration in the format of ISO 8601", drain("PT5M"), reports(field)},
		entry{"with a creation timeout of 0s", Changes{"spec/timeouts/creation": "0s"}, reports("spec.timeouts.creation")},
		entry{"with an update timeout of 0s", Changes{"spec/timeouts/update": "0s"}, reports("spec.timeouts.update")},
		entry{"with a volumeDetach in words", Changes{"spec/timeouts/volumeDetach": "soon"},
			reports("spec.timeouts.volumeDetach")},
	)
}

func nodes() []InvalidObject {
	node := func(field string, value any) Changes { return Changes{"spec/node/" + field: value} }
	labels := func(key string, value any) Changes { return node("labels", map[string]any{key: value}) }
	taints := func(list string, taints ...any) Changes { return node(list, taints) }
	gates := func(types ...string) Changes {
		return node("readinessGates", many(len(types), func(i int) any { return map[string]any{"conditionType": types[i]} }))
	}
	const inLabels, inAnnotations = "spec.node.labels", "spec.node.annotations"
	return table(BySchema, "Machine", Machine,
		entry{"with a node label key with a blank", labels("my pool", "a"), reports(inLabels)},
		entry{"with a node label key with two slashes", labels("a/b/c", "a"), reports(inLabels)},
		entry{"with a node label key with a prefix of 254 characters", labels(a(254)+"/b", "a"), reports(inLabels)},
		entry{"with a node label key of 64 characters", labels(a(64), "a"), reports(inLabels)},
		entry{"with a non-ASCII node label key", labels("größe", "a"), reports(inLabels)},
		entry{"with an empty node label key", labels("", "a"), reports(inLabels)},
		entry{"with a node label value with a blank", labels("pool", "a b"), reports(inLabels)},
		entry{"with a node label value of 64 characters", labels("pool", a(64)), reports(inLabels)},
		entry{"with a node label value that is a boolean", labels("pool", true), reports(inLabels + ".pool")},
		entry{"with too many node labels", node("labels", dictionary(65)), reports(inLabels)},
		entry{"with a node annotation key with a blank", node("annotations", map[string]any{"my note": "a"}),
			reports(inAnnotations)},
		entry{"with a node annotation of 16 KiB", node("annotations", map[string]any{"note": a(16385)}),
			reports(inAnnotations)},
		entry{"with too many node annotations", node("annotations", dictionary(65)), reports(inAnnotations)},
		entry{"with a duplicate taint", taints("taints", taint("gpu", "a", "NoSchedule"), taint("gpu", "b", "NoSchedule")),
			reports("spec.node.taints")},
		entry{"with a taint with an unknown effect", taints("taints", taint("gpu", "", "Maybe")),
			reports("spec.node.taints[0].effect")},
		entry{"with a taint without an effect", taints("taints", map[string]any{"key": "gpu"}),
			reports("spec.node.taints[0].effect")},
		entry{"with a taint with an invalid key", taints("taints", taint("g p u", "", "NoSchedule")),
			reports("spec.node.taints[0].key")},
		entry{"with a startup taint with an invalid value", taints("startupTaints", taint("gpu", "a b", "NoSchedule")),
			reports("spec.node.startupTaints[0].value")},
		entry{"with too many taints",
			taints("taints", many(65, func(i int) any {
				return taint(a(i%60+1)+"b", "", []string{"NoSchedule", "NoExecute"}[i/60])
			})...), reports("spec.node.taints")},
		entry{"with a taint in both taints and startupTaints", merged(taints("taints", taint("gpu", "", "NoSchedule")),
			taints("startupTaints", taint("gpu", "", "NoSchedule"))), reports("spec.node.startupTaints")},
		entry{"with a readiness gate without a type", gates(""), reports("spec.node.readinessGates[0].conditionType")},
		entry{"with a readiness gate with a blank", gates("network ready"), reports("spec.node.readinessGates[0].conditionType")},
		entry{"with a readiness gate that is too long", gates(a(317)), reports("spec.node.readinessGates[0].conditionType")},
		entry{"with the readiness gate ready", gates("ready"),
			reports("spec.node.readinessGates[0].conditionType", "Ready is always required")},
		entry{"with the readiness gate DiskPressure", gates("NetworkReady", "DiskPressure"),
			reports("spec.node.readinessGates[1].conditionType", "not True on a healthy Node")},
		entry{"with a duplicate readiness gate", gates("NetworkReady", "NetworkReady"), reports("spec.node.readinessGates")},
		entry{"with too many readiness gates", node("readinessGates", many(17, func(i int) any {
			return map[string]any{"conditionType": a(i + 1)}
		})), reports("spec.node.readinessGates")},
	)
}

func drains() []InvalidObject {
	rules := func(rules ...any) Changes { return Changes{"spec/drain": map[string]any{"rules": rules}} }
	rule := func(change map[string]any) map[string]any {
		all := map[string]any{"name": "jobs", "podSelector": map[string]any{}, "behavior": "WaitCompleted"}
		maps.Copy(all, change)
		maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil })
		return all
	}
	with := func(field string, value any) Changes { return rules(rule(map[string]any{field: value})) }
	labels := func(key string, value any) any { return map[string]any{"matchLabels": map[string]any{key: value}} }
	expression := func(operator string, values ...any) any {
		return map[string]any{"matchExpressions": []any{map[string]any{"key": "app", "operator": operator, "values": values}}}
	}
	const at = "spec.drain.rules[0]"
	return table(BySchema, "Machine", Machine,
		entry{"with a drain rule without a name", with("name", nil), reports(at + ".name")},
		entry{"with a drain rule with a name with a blank", with("name", "my jobs"), reports(at + ".name")},
		entry{"with a drain rule with a name that is too long", with("name", a(64)), reports(at + ".name")},
		entry{"with a duplicate drain rule", rules(rule(nil), rule(nil)), reports("spec.drain.rules[1]", "jobs")},
		entry{"with a drain rule without a podSelector", with("podSelector", nil), reports(at + ".podSelector")},
		entry{"with a drain rule without a behavior", with("behavior", nil), reports(at + ".behavior")},
		entry{"with a drain rule with an unknown behavior", with("behavior", "Evict"), reports(at+".behavior", "WaitCompleted")},
		entry{"with a drain rule with an order for WaitCompleted", with("order", 1),
			reports(at+".order", "must not be set with behavior Skip or WaitCompleted")},
		entry{"with a drain rule with an order for Skip", rules(rule(map[string]any{"behavior": "Skip", "order": 0})),
			reports(at+".order", "must not be set with behavior Skip or WaitCompleted")},
		entry{"with a drain rule with an order that is too high",
			rules(rule(map[string]any{"behavior": "Drain", "order": 1 << 31})), reports(at + ".order")},
		entry{"with a drain rule with an order that is too low",
			rules(rule(map[string]any{"behavior": "Drain", "order": -1<<31 - 1})), reports(at + ".order")},
		entry{"with a drain rule with an invalid label value", with("podSelector", labels("app", "a b")),
			reports(at + ".podSelector.matchLabels")},
		entry{"with a drain rule with an invalid label key", with("podSelector", labels("a p p", "web")),
			reports(at + ".podSelector.matchLabels")},
		entry{"with a drain rule with an unknown operator", with("podSelector", expression("Near", "web")),
			reports(at + ".podSelector.matchExpressions[0].operator")},
		entry{"with a drain rule with an operator without values", with("podSelector", expression("In")),
			reports(at+".podSelector.matchExpressions[0].values", "values must be set with operator In and NotIn")},
		entry{"with a drain rule with an invalid namespaceSelector", with("namespaceSelector", expression("Exists", "x")),
			reports(at+".namespaceSelector.matchExpressions[0].values", "values must be set with operator In and NotIn")},
		entry{"with too many drain rules", rules(many(33, func(i int) any {
			return rule(map[string]any{"name": a(i + 1)})
		})...), reports("spec.drain.rules")},
		entry{"with an unknown value of podsWithVolumes", Changes{"spec/drain": map[string]any{"podsWithVolumes": "Serial"}},
			reports("spec.drain.podsWithVolumes", "OneAtATime")},
		entry{"with an unknown value of singleReplicas", Changes{"spec/drain": map[string]any{"singleReplicas": "Surge"}},
			reports("spec.drain.singleReplicas", "Restart")},
		entry{"with an unknown field of the drain", Changes{"spec/drain": map[string]any{"timeout": "1m"}},
			reports("spec.drain.timeout")},
	)
}

// reservedKeys returns objects that set Node keys that only Machinist may set. at is the path of the MachineSpec.
func reservedKeys(kind, sample, at string) []InvalidObject {
	field := strings.ReplaceAll(at, "/", ".") + ".node"
	all := table(ByManager, kind, sample,
		entry{"with a node label of Machinist",
			Changes{at + "/node/labels": map[string]any{v1beta1.NodeLabelMachine: "other"}},
			reports(field+".labels", v1beta1.NodeLabelMachine)},
		entry{"with a taint of Machinist",
			Changes{at + "/node/taints": []any{taint(v1beta1.NodeTaintUninitialized, "", "NoSchedule")}},
			reports(field + ".taints[0].key")},
		entry{"with the taint of outdated nodes",
			Changes{at + "/node/taints": []any{taint(v1beta1.NodeTaintOutdated, "", "NoExecute")}},
			reports(field + ".taints[0].key")},
		entry{"with a startup taint of Machinist",
			Changes{at + "/node/startupTaints": []any{taint(v1beta1.NodeTaintUninitialized, "", "NoSchedule")}},
			reports(field + ".startupTaints[0].key")},
	)
	for _, key := range []string{
		v1beta1.NodeAnnotationMachine, v1beta1.NodeAnnotationClusterNamespace, v1beta1.NodeAnnotationInstance,
		v1beta1.NodeAnnotationLastAppliedNodeTemplate,
		v1beta1.NodeAnnotationUpdateRequested, v1beta1.NodeAnnotationUpdateResult, v1beta1.NodeAnnotationCordoned,
	} {
		all = append(all, table(ByManager, kind, sample,
			entry{"with the node annotation " + key, Changes{at + "/node/annotations": map[string]any{key: "v9.9.9"}},
				reports(field+".annotations", key)})...)
	}
	return all
}

func taint(key, value, effect string) any {
	return map[string]any{"key": key, "value": value, "effect": effect}
}

func dictionary(n int) map[string]any {
	all := map[string]any{}
	for i := range n {
		all[a(i%50+1)+strings.Repeat("b", i/50)] = "x"
	}
	return all
}
