package manifests

func providers() []Bad {
	spec := func(field string, value any) Changes { return Changes{"spec/" + field: value} }
	args := func(values ...string) Changes { return spec("extraArgs", values) }
	const kind, typeField, image = "Provider", "spec.type", "spec.image"
	all := table(BySchema, kind, Provider,
		row{"without a type", spec("type", nil), reports(typeField)},
		row{"with an empty type", spec("type", ""), reports(typeField)},
		row{"with a type in capitals", spec("type", "Azure"), reports(typeField)},
		row{"with auto in small letters and a dash at its end", spec("type", "auto-"), reports(typeField)},
		row{"with a type that is too long", spec("type", a(45)), reports(typeField)},
		row{"with a registry with a scheme", spec("image/registry", "https://registry.example.com"),
			reports(image + ".registry")},
		row{"with a repository in capitals", spec("image/repository", "Machinist"), reports(image + ".repository")},
		row{"with a tag with a colon", spec("image/tag", ":v1"), reports(image + ".tag")},
		row{"with a digest that is too short", spec("image/digest", "sha256:abc"), reports(image + ".digest")},
		row{"with a pull policy that is none", spec("image/pullPolicy", "Sometimes"), reports(image + ".pullPolicy")},
		row{"with a pull secret twice", spec("image/pullSecrets", []any{Ref("a"), Ref("a")}),
			reports(image + ".pullSecrets")},
		row{"with negative replicas", spec("replicas", -1), reports("spec.replicas")},
		row{"with eleven replicas", spec("replicas", 11), reports("spec.replicas")},
		row{"with a kubeconfig without a name", spec("control/kubeconfigSecretRef", map[string]any{}),
			reports("spec.control.kubeconfigSecretRef.name")},
		row{"with a kubeconfig with a key that is a path", spec("target/kubeconfigSecretRef",
			map[string]any{"name": "target", "key": "a/b"}), reports("spec.target.kubeconfigSecretRef.key")},
		row{"with a target cluster and none", spec("target", map[string]any{"none": true,
			"kubeconfigSecretRef": Ref("target")}), reports("spec.target.none", "either")},
		row{"with a namespace that is none", spec("watchNamespace", "My_Team"), reports("spec.watchNamespace")},
		row{"with an argument that is no flag", args("verbose"), reports("spec.extraArgs[0]")},
		row{"with the flag of the control cluster", args("--log-level=debug", "--control-kubeconfig=/tmp/x"),
			reports("spec.extraArgs", "spec.control")},
		row{"with the flag of the lease's namespace", args("--leader-election-namespace=default"),
			reports("spec.extraArgs")},
		row{"with values that are a list", spec("values", []any{}), reports("spec.values")},
		row{"that detects its type from Nodes elsewhere", Changes{"spec/type": "Auto",
			"spec/target/kubeconfigSecretRef": Ref("target")}, reports(typeField, "name the type")},
		row{"that detects its type without a target cluster", Changes{"spec/type": "Auto", "spec/target/none": true},
			reports(typeField, "name the type")},
	)
	changed := Bad{Name: kind + " whose type is changed", Sample: Provider, Was: Changes{},
		Changes: spec("type", "azure"), Reports: reports(typeField, "immutable"), By: BySchema}
	return append(all, changed)
}
