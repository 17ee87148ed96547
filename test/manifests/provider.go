package manifests

func providers() []InvalidObject {
	spec := func(field string, value any) Changes { return Changes{"spec/" + field: value} }
	args := func(values ...string) Changes { return spec("extraArgs", values) }
	const kind, typeField, image = "Provider", "spec.type", "spec.image"
	all := table(BySchema, kind, Provider,
		entry{"without a type", spec("type", nil), reports(typeField)},
		entry{"with an empty type", spec("type", ""), reports(typeField)},
		entry{"with a type in upper case", spec("type", "Azure"), reports(typeField)},
		entry{"with a type that ends with a dash", spec("type", "auto-"), reports(typeField)},
		entry{"with a type that is too long", spec("type", a(45)), reports(typeField)},
		entry{"with a registry with a scheme", spec("image/registry", "https://registry.example.com"),
			reports(image + ".registry")},
		entry{"with a repository in upper case", spec("image/repository", "Machinist"), reports(image + ".repository")},
		entry{"with a tag with a colon", spec("image/tag", ":v1"), reports(image + ".tag")},
		entry{"with a digest that is too short", spec("image/digest", "sha256:abc"), reports(image + ".digest")},
		entry{"with an unknown pull policy", spec("image/pullPolicy", "Sometimes"), reports(image + ".pullPolicy")},
		entry{"with a duplicate pull secret", spec("image/pullSecrets", []any{Ref("a"), Ref("a")}),
			reports(image + ".pullSecrets")},
		entry{"with negative replicas", spec("replicas", -1), reports("spec.replicas")},
		entry{"with eleven replicas", spec("replicas", 11), reports("spec.replicas")},
		entry{"with a kubeconfig without a name", spec("control/kubeconfigSecretRef", map[string]any{}),
			reports("spec.control.kubeconfigSecretRef.name")},
		entry{"with a kubeconfig with a key that is a path", spec("target/kubeconfigSecretRef",
			map[string]any{"name": "target", "key": "a/b"}), reports("spec.target.kubeconfigSecretRef.key")},
		entry{"with a target kubeconfig and target none", spec("target", map[string]any{"none": true,
			"kubeconfigSecretRef": Ref("target")}), reports("spec.target.none", "exclude each other")},
		entry{"with an invalid namespace", spec("watchNamespace", "My_Team"), reports("spec.watchNamespace")},
		entry{"with an argument that is not a flag", args("verbose"), reports("spec.extraArgs[0]")},
		entry{"with the flag of the control cluster", args("--log-level=debug", "--control-kubeconfig=/tmp/x"),
			reports("spec.extraArgs", "spec.control")},
		entry{"with the flag of the lease's namespace", args("--leader-election-namespace=default"),
			reports("spec.extraArgs")},
		entry{"with values that are a list", spec("values", []any{}), reports("spec.values")},
		entry{"with type Auto and a separate target cluster", Changes{"spec/type": "Auto",
			"spec/target/kubeconfigSecretRef": Ref("target")}, reports(typeField, "type must be set")},
		entry{"with type Auto and no target cluster", Changes{"spec/type": "Auto", "spec/target/none": true},
			reports(typeField, "type must be set")},
	)
	changed := InvalidObject{Name: kind + " whose type is changed", Sample: Provider, ChangesBefore: Changes{},
		Changes: spec("type", "azure"), Reports: reports(typeField, "immutable"), By: BySchema}
	return append(all, changed)
}
