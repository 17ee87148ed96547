package manifests

func classes() []Bad {
	spec := func(field string, value any) Changes { return Changes{"spec/" + field: value} }
	memory := func(value any) Changes {
		return Changes{"spec/capacity/resources": map[string]any{"memory": value}}
	}
	const field = "spec.capacity.resources.memory"
	all := table(BySchema, "MachineClass", Class,
		row{"without provider", spec("provider", nil), reports("spec.provider")},
		row{"with an empty provider", spec("provider", ""), reports("spec.provider")},
		row{"with a provider that is no label", spec("provider", "Sim.Cloud"), reports("spec.provider")},
		row{"without providerSpec", spec("providerSpec", nil), reports("spec.providerSpec")},
		row{"with a providerSpec that is a list", spec("providerSpec", []string{"small"}), reports("spec.providerSpec")},
		row{"with an adoption that is none", spec("adoption", "Maybe"), reports("spec.adoption")},
		row{"with credentials without a name", spec("credentialsRef", map[string]any{}), reports("spec.credentialsRef.name")},
		row{"with credentials with a name that is none", spec("credentialsRef", Ref("My Secret")),
			reports("spec.credentialsRef.name")},
		row{"with user data with a name that is too long", spec("userDataRef", Ref(a(254))),
			reports("spec.userDataRef.name")},
		row{"with user data with a key that is none", spec("userDataRef", map[string]any{"name": "boot", "key": "a/b"}),
			reports("spec.userDataRef.key")},
		row{"with an exponent in a quantity", memory("1e3"), reports(field)},
		row{"with a quantity that hangs the parser", memory("1e999999999999"), reports(field)},
		row{"with a quantity of 16 digits", memory("1000000000000000"), reports(field)},
		row{"with a quantity that is a number of 16 digits", memory(1000000000000000), reports(field)},
		row{"with a quantity that is a fraction", memory(1.5), reports(field)},
		row{"with a negative quantity", memory("-1"), reports(field)},
		row{"with a quantity without digits", memory("Gi"), reports(field)},
		row{"with an empty quantity", memory(""), reports(field)},
		row{"with a resource that is no name", spec("capacity/resources", map[string]any{"my gpu": "1"}),
			reports("spec.capacity.resources")},
		row{"with too many resources", spec("capacity/resources", dictionary(65)), reports("spec.capacity.resources")},
		row{"with an instance type that is too long", spec("capacity/instanceType", a(64)),
			reports("spec.capacity.instanceType")},
	)
	return append(all, table(ByManager, "MachineClass", Class,
		row{"with an instance type that is no label", spec("capacity/instanceType", "big one"),
			reports("spec.capacity.instanceType")},
		row{"with a region that is no label", spec("capacity/region", "eu/1"), reports("spec.capacity.region")},
		row{"with a zone that is no label", spec("capacity/zone", "-a"), reports("spec.capacity.zone")},
		row{"with an architecture in unicode", spec("capacity/architecture", "größe"), reports("spec.capacity.architecture")},
	)...)
}
