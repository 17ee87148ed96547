package manifests

import (
	"strings"

	"machinist.dev/machinist/api/v1beta1"
)

func name(value string) Changes { return Changes{"metadata/name": value} }

func a(n int) string { return strings.Repeat("a", n) }

func names() []Bad {
	const field = "metadata.name"
	var all []Bad
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
			row{"without a name", name(""), reports("name")},
			row{"with a name that is too long", name(a(kind.tooLong)), reports(field, kind.most)},
			row{"with a name in capitals", name("Pool"), reports(field)},
			row{"with a name with an underscore", name("a_b"), reports(field)},
			row{"with a field that is none", Changes{"spec/surprise": "x"}, reports("spec.surprise")},
			row{"without a spec", Changes{"spec": nil}, reports("spec")},
		)...)
	}
	for kind, sample := range map[string]string{"Machine": Machine, "MachineSet": Set, "MachineDeployment": Deployment} {
		all = append(all, table(BySchema, kind, sample, row{"with a dot in its name", name("a.b"), reports(field)})...)
	}
	return all
}

func machines() []Bad {
	spec := func(field string, value any) Changes { return Changes{"spec/" + field: value} }
	annotation := func(name, value string) Changes {
		return Changes{"metadata/annotations/machinist.dev~1" + name: value}
	}
	providerLabel := func(value string) Changes { return Changes{"metadata/labels/machinist.dev~1provider": value} }
	const class, providerID, version = "spec.classRef.name", "spec.providerID", "spec.version"
	const priority, preserve = "metadata.annotations[machinist.dev/delete-priority]", "metadata.annotations[machinist.dev/preserve]"
	const label = "metadata.labels[machinist.dev/provider]"
	all := table(BySchema, "Machine", Machine,
		row{"with neither class nor provider", spec("classRef", nil),
			reports("spec", "exactly one of classRef and provider")},
		row{"with class and providerSpec", spec("providerSpec", map[string]any{}), reports("spec.providerSpec")},
		row{"with class and credentialsRef", spec("credentialsRef", Ref("cloud")), reports("spec.credentialsRef")},
		row{"with class and userDataRef", spec("userDataRef", Ref("boot")), reports("spec.userDataRef")},
		row{"with a class without a name", spec("classRef", map[string]any{}), reports(class)},
		row{"with a class with an empty name", spec("classRef", Ref("")), reports(class)},
		row{"with a class of another namespace", spec("classRef", Ref("other/small")), reports(class)},
		row{"with a class with a name that is too long", spec("classRef", Ref(a(254))), reports(class)},
		row{"with a version without v", spec("version", "1.36.3"), reports(version)},
		row{"with a version without a patch", spec("version", "v1.36"), reports(version, "v1.36", "such as v1.36.3")},
		row{"with a version that is a word", spec("version", "latest"), reports(version)},
		row{"with an empty version", spec("version", ""), reports(version)},
		row{"with a version that is too long", spec("version", "v1.36.3-"+a(64)), reports(version)},
		row{"with a providerID without a scheme", spec("providerID", "vm-1"), reports(providerID)},
		row{"with a providerID with a blank", spec("providerID", "sim:///vm 1"), reports(providerID)},
		row{"with a providerID that is too long", spec("providerID", "sim:///"+a(1024)), reports(providerID)},
		row{"with a hook without a domain", hooks("preDrain", hook("backup", "backup")),
			reports("spec.lifecycleHooks.preDrain[0].name")},
		row{"with a hook without an owner", hooks("preTerminate", hook("backup.example.com", "")),
			reports("spec.lifecycleHooks.preTerminate[0].owner")},
		row{"with a hook twice", hooks("preDrain", hook("a.example.com", "x"), hook("a.example.com", "y")),
			reports("spec.lifecycleHooks.preDrain[1]")},
		row{"with too many hooks",
			hooks("preDrain", many(17, func(i int) any { return hook(a(i+1)+".example.com", "x") })...),
			reports("spec.lifecycleHooks.preDrain")},
	)
	all = append(all, table(ByPolicy, "Machine", Machine,
		row{"with a priority in words", annotation("delete-priority", "low"), reports(priority, "low")},
		row{"with an empty priority", annotation("delete-priority", ""), reports(priority)},
		row{"with a priority beyond an int", annotation("delete-priority", "10000000000"), reports(priority)},
		row{"with a priority that is a fraction", annotation("delete-priority", "1.5"), reports(priority)},
		row{"that is preserved by presence", annotation("preserve", ""), reports(preserve)},
		row{"that is preserved true", annotation("preserve", "true"), reports(preserve, "true")},
		row{"with a provider label that is no DNS label", providerLabel("Sim"), reports(label, "Sim")},
		row{"with an empty provider label", providerLabel(""), reports(label)},
	)...)
	all = append(all, reserved("Machine", Machine, "spec")...)
	return append(all, table(ByManager, "Machine", Machine,
		row{"with an instance that its class does not allow to adopt", spec("providerID", "sim://sim-1/nobody"),
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

// inline is what carries its own providerSpec.
func inline() []Bad {
	spec := func(field string, value any) Changes { return Changes{"spec/" + field: value} }
	all := table(BySchema, "inline Machine", InlineMachine,
		row{"with a class", spec("classRef", Ref("small")), reports("spec", "exactly one of classRef and provider")},
		row{"without providerSpec", spec("providerSpec", nil), reports("spec.providerSpec")},
		row{"without provider", spec("provider", nil), reports("exactly one of classRef and provider")},
		row{"with an empty provider", spec("provider", ""), reports("spec.provider")},
		row{"with a provider that is no label", spec("provider", "Sim.Cloud"), reports("spec.provider")},
		row{"with a provider that is too long", spec("provider", a(64)), reports("spec.provider")},
		row{"with a providerSpec that is a list", spec("providerSpec", []string{"small"}), reports("spec.providerSpec")},
		row{"with credentials without a name", spec("credentialsRef", map[string]any{}), reports("spec.credentialsRef.name")},
		row{"with credentials of another namespace", spec("credentialsRef", Ref("kube-system/cloud")),
			reports("spec.credentialsRef.name")},
		row{"with user data without a name", spec("userDataRef", map[string]any{"key": "x"}),
			reports("spec.userDataRef.name")},
		row{"with user data with a key that is none", spec("userDataRef", map[string]any{"name": "boot", "key": "a/b"}),
			reports("spec.userDataRef.key")},
		row{"with user data with an empty key", spec("userDataRef", map[string]any{"name": "boot", "key": ""}),
			reports("spec.userDataRef.key")},
	)
	all = append(all, table(ByPolicy, "inline Machine", InlineMachine,
		row{"with another provider label", Changes{"metadata/labels/machinist.dev~1provider": "azure"},
			reports("metadata.labels[machinist.dev/provider]", "azure", "spec.provider")},
	)...)
	all = append(all, providerSpecs("MachineClass", Class, nil, "spec")...)
	all = append(all, providerSpecs("inline Machine", InlineMachine, nil, "spec")...)
	for kind, sample := range fleets {
		inlined := Changes{"spec/template/spec": map[string]any{"provider": "sim", "providerSpec": simMachine(nil)}}
		all = append(all, providerSpecs("inline "+kind, sample, inlined, "spec/template/spec")...)
	}
	// The manager's webhook is asked first, and about machines only.
	const big = "with a providerSpec of 1 MiB"
	for i := range all {
		if strings.HasSuffix(all[i].Name, big) && !strings.HasPrefix(all[i].Name, "MachineClass") {
			all[i].By = ByManager
		}
	}
	return all
}

// simMachine is a providerSpec that the simulated cloud takes, with changes to it.
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

// providerSpecs are those that the simulated cloud's driver refuses, at a path of a kind.
func providerSpecs(kind, sample string, base Changes, at string) []Bad {
	field := strings.ReplaceAll(at, "/", ".") + ".providerSpec"
	var all []Bad
	for _, spec := range []struct {
		what  string
		value any
		field string
	}{
		{"that is empty", map[string]any{}, ".apiVersion"},
		{"of another version", simMachine(map[string]any{"apiVersion": "sim.machinist.dev/v9"}), ".apiVersion"},
		{"of another kind", simMachine(map[string]any{"kind": "AzureMachine"}), ".kind"},
		{"without a region", simMachine(map[string]any{"region": nil}), ".region"},
		{"with a region that is no name", simMachine(map[string]any{"region": "../sim-1"}), ".region"},
		{"without a type", simMachine(map[string]any{"instanceType": nil}), ".instanceType"},
		{"with a type that is a number", simMachine(map[string]any{"instanceType": 4}), ".instanceType"},
		{"without an image", simMachine(map[string]any{"image": ""}), ".image"},
		{"with a zone in unicode", simMachine(map[string]any{"zone": "größe"}), ".zone"},
		{"with a field that is none", simMachine(map[string]any{"size": "small"}), ".size"},
		{"with an endpoint of its own", simMachine(map[string]any{"endpoint": "http://169.254.169.254"}), ".endpoint"},
		{"of 1 MiB", simMachine(map[string]any{"blob": strings.Repeat("x", 1<<20)}), ""},
	} {
		changes := Changes{}
		for path, value := range base {
			changes[path] = value
		}
		changes[at+"/providerSpec"] = spec.value
		all = append(all, Bad{
			Name: kind + " with a providerSpec " + spec.what, Sample: sample, Changes: changes,
			Reports: reports(field + spec.field), By: ByProvider,
		})
	}
	return append(all, Bad{
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

func durations() []Bad {
	drain := func(value any) Changes { return Changes{"spec/timeouts/drain": value} }
	const field = "spec.timeouts.drain"
	return table(BySchema, "Machine", Machine,
		row{"with a duration in words", drain("10 minutes"), reports(field)},
		row{"with a duration in weeks", drain("3 weeks"), reports(field)},
		row{"with a duration in days", drain("3d"), reports(field)},
		row{"with a duration without a unit", drain("20"), reports(field)},
		row{"with a duration that is a number", drain(20), reports(field)},
		row{"with an empty duration", drain(""), reports(field)},
		row{"with a negative duration", drain("-5m"), reports(field)},
		row{"with a duration in nanoseconds", drain("5ns"), reports(field)},
		row{"with a duration below a millisecond", drain("0.5ms"), reports(field)},
		row{"with a duration of six digits", drain("100000h"), reports(field)},
		row{"with a duration that sums up to six digits", drain("99999h99999h"), reports(field)},
		row{"with a duration as in ISO 8601", drain("PT5M"), reports(field)},
		row{"with no time to create", Changes{"spec/timeouts/creation": "0s"}, reports("spec.timeouts.creation")},
		row{"with no time to update", Changes{"spec/timeouts/update": "0s"}, reports("spec.timeouts.update")},
		row{"with a volumeDetach in words", Changes{"spec/timeouts/volumeDetach": "soon"},
			reports("spec.timeouts.volumeDetach")},
	)
}

// nodes are what a Node cannot carry, or may not from a person.
func nodes() []Bad {
	node := func(field string, value any) Changes { return Changes{"spec/node/" + field: value} }
	labels := func(key string, value any) Changes { return node("labels", map[string]any{key: value}) }
	taints := func(list string, taints ...any) Changes { return node(list, taints) }
	const inLabels, inAnnotations = "spec.node.labels", "spec.node.annotations"
	return table(BySchema, "Machine", Machine,
		row{"with a node label key with a blank", labels("my pool", "a"), reports(inLabels)},
		row{"with a node label key with two slashes", labels("a/b/c", "a"), reports(inLabels)},
		row{"with a node label key with a prefix of 254", labels(a(254)+"/b", "a"), reports(inLabels)},
		row{"with a node label key of 64", labels(a(64), "a"), reports(inLabels)},
		row{"with a node label key in unicode", labels("größe", "a"), reports(inLabels)},
		row{"with an empty node label key", labels("", "a"), reports(inLabels)},
		row{"with a node label value with a blank", labels("pool", "a b"), reports(inLabels)},
		row{"with a node label value of 64", labels("pool", a(64)), reports(inLabels)},
		row{"with a node label value that is a boolean", labels("pool", true), reports(inLabels + ".pool")},
		row{"with too many node labels", node("labels", dictionary(65)), reports(inLabels)},
		row{"with a node annotation key with a blank", node("annotations", map[string]any{"my note": "a"}),
			reports(inAnnotations)},
		row{"with a node annotation of 16 KiB", node("annotations", map[string]any{"note": a(16385)}),
			reports(inAnnotations)},
		row{"with too many node annotations", node("annotations", dictionary(65)), reports(inAnnotations)},
		row{"with a taint twice", taints("taints", taint("gpu", "a", "NoSchedule"), taint("gpu", "b", "NoSchedule")),
			reports("spec.node.taints")},
		row{"with a taint with an effect that is none", taints("taints", taint("gpu", "", "Maybe")),
			reports("spec.node.taints[0].effect")},
		row{"with a taint without an effect", taints("taints", map[string]any{"key": "gpu"}),
			reports("spec.node.taints[0].effect")},
		row{"with a taint with a bad key", taints("taints", taint("g p u", "", "NoSchedule")),
			reports("spec.node.taints[0].key")},
		row{"with a startup taint with a bad value", taints("startupTaints", taint("gpu", "a b", "NoSchedule")),
			reports("spec.node.startupTaints[0].value")},
		row{"with too many taints",
			taints("taints", many(65, func(i int) any {
				return taint(a(i%60+1)+"b", "", []string{"NoSchedule", "NoExecute"}[i/60])
			})...), reports("spec.node.taints")},
		row{"with a taint both lasting and at startup", merged(taints("taints", taint("gpu", "", "NoSchedule")),
			taints("startupTaints", taint("gpu", "", "NoSchedule"))), reports("spec.node.startupTaints")},
	)
}

// reserved are keys of a Node that Machinist writes itself, under the path of a MachineSpec.
func reserved(kind, sample, at string) []Bad {
	field := strings.ReplaceAll(at, "/", ".") + ".node"
	all := table(ByManager, kind, sample,
		row{"with a node label of Machinist's",
			Changes{at + "/node/labels": map[string]any{v1beta1.NodeLabelMachine: "other"}},
			reports(field+".labels", v1beta1.NodeLabelMachine)},
		row{"with a taint of Machinist's",
			Changes{at + "/node/taints": []any{taint(v1beta1.NodeTaintUninitialized, "", "NoSchedule")}},
			reports(field + ".taints[0].key")},
		row{"with the taint of outdated nodes",
			Changes{at + "/node/taints": []any{taint(v1beta1.NodeTaintOutdated, "", "NoExecute")}},
			reports(field + ".taints[0].key")},
		row{"with a startup taint of Machinist's",
			Changes{at + "/node/startupTaints": []any{taint(v1beta1.NodeTaintUninitialized, "", "NoSchedule")}},
			reports(field + ".startupTaints[0].key")},
	)
	for _, key := range []string{
		v1beta1.NodeAnnotationMachine, v1beta1.NodeAnnotationClusterNamespace, v1beta1.NodeAnnotationInstance,
		v1beta1.NodeAnnotationLastAppliedNodeTemplate,
		v1beta1.NodeAnnotationUpdateRequested, v1beta1.NodeAnnotationUpdateResult, v1beta1.NodeAnnotationCordoned,
	} {
		all = append(all, table(ByManager, kind, sample,
			row{"with the node annotation " + key, Changes{at + "/node/annotations": map[string]any{key: "v9.9.9"}},
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
