package manifests

func classes() []InvalidObject {
	spec := func(field string, value any) Changes { return Changes{"spec/" + field: value} }
	memory := func(value any) Changes {
		return Changes{"spec/capacity/resources": map[string]any{"memory": value}}
	}
	const field = "spec.capacity.resources.memory"
	all := table(BySchema, "MachineClass", Class,
		entry{"without provider", spec("provider", nil), reports("spec.provider")},
		entry{"with an empty provider", spec("provider", ""), reports("spec.provider")},
		entry{"with a provider that is not a label", spec("provider", "Sim.Cloud"), reports("spec.provider")},
		entry{"without providerSpec", spec("providerSpec", nil), reports("spec.providerSpec")},
		entry{"with a providerSpec that is a list", spec("providerSpec", []string{"small"}), reports("spec.providerSpec")},
		entry{"with an unknown adoption", spec("adoption", "Maybe"), reports("spec.adoption")},
		entry{"with credentials without a name", spec("credentialsRef", map[string]any{}), reports("spec.credentialsRef.name")},
		entry{"with credentials with an invalid name", spec("credentialsRef", Ref("My Secret")),
			reports("spec.credentialsRef.name")},
		entry{"with user data with a name that is too long", spec("userDataRef", Ref(a(254))),
			reports("spec.userDataRef.name")},
		entry{"with user data with an invalid key", spec("userDataRef", map[string]any{"name": "boot", "key": "a/b"}),
			reports("spec.userDataRef.key")},
		entry{"with an exponent in a quantity", memory("1e3"), reports(field)},
		entry{"with a quantity that hangs the parser", memory("1e999999999999"), reports(field)},
		entry{"with a quantity of 16 digits", memory("1000000000000000"), reports(field)},
		entry{"with a quantity that is a number of 16 digits", memory(1000000000000000), reports(field)},
		entry{"with a quantity that is a fraction", memory(1.5), reports(field)},
		entry{"with a negative quantity", memory("-1"), reports(field)},
		entry{"with a quantity without digits", memory("Gi"), reports(field)},
		entry{"with an empty quantity", memory(""), reports(field)},
		entry{"with a resource with an invalid name", spec("capacity/resources", map[string]any{"my gpu": "1"}),
			reports("spec.capacity.resources")},
		entry{"with too many resources", spec("capacity/resources", dictionary(65)), reports("spec.capacity.resources")},
		entry{"with an instance type that is too long", spec("capacity/instanceType", a(64)),
			reports("spec.capacity.instanceType")},
	)
	return append(all, table(ByManager, "MachineClass", Class,
		entry{"with an instance type that is not a label", spec("capacity/instanceType", "big one"),
			reports("spec.capacity.instanceType")},
		entry{"with a region that is not a label", spec("capacity/region", "eu/1"), reports("spec.capacity.region")},
		entry{"with a zone that is not a label", spec("capacity/zone", "-a"), reports("spec.capacity.zone")},
		entry{"with a non-ASCII architecture", spec("capacity/architecture", "größe"), reports("spec.capacity.architecture")},
	)...)
}
