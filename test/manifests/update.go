package manifests

func updates() []InvalidObject {
	const providerID = "sim://sim-1/vm-1"
	userData := Changes{"spec/userDataRef": Ref("boot")}
	var all []InvalidObject
	for _, u := range []struct {
		what, sample string
		was, changes Changes
		field        string
		by           Guard
	}{
		{"MachineClass whose provider changes", Class, Changes{}, Changes{"spec/provider": "azure"},
			"spec.provider:", BySchema},
		{"MachineClass whose providerSpec changes a value", Class, Changes{},
			Changes{"spec/providerSpec/instanceType": "large"}, "spec.providerSpec:", BySchema},
		{"MachineClass whose providerSpec gets a key", Class, Changes{}, Changes{"spec/providerSpec/zone": "a"},
			"spec.providerSpec:", BySchema},
		{"MachineClass whose providerSpec loses a key", Class, Changes{"spec/providerSpec/zone": "a"},
			Changes{"spec/providerSpec/zone": nil}, "spec.providerSpec:", BySchema},
		// The schema also contains a rule, but that rule does not detect a renamed key.
		{"MachineClass whose providerSpec has a renamed key", Class, Changes{"spec/providerSpec/zone": "a"},
			Changes{"spec/providerSpec/zone": nil, "spec/providerSpec/zoen": "a"}, "spec.providerSpec", ByPolicy},
		{"MachineClass that gets user data", Class, Changes{}, userData, "spec.userDataRef:", BySchema},
		{"MachineClass that loses its user data", Class, userData, Changes{"spec/userDataRef": nil},
			"spec.userDataRef:", BySchema},
		{"MachineClass that gets other user data", Class, userData, Changes{"spec/userDataRef/name": "other"},
			"spec.userDataRef:", BySchema},
		{"MachineClass that gets another key of the user data", Class, userData, Changes{"spec/userDataRef/key": "other"},
			"spec.userDataRef:", BySchema},
		{"MachineSet whose selector changes", Set, Changes{}, Changes{"spec/selector": MatchLabels("tier", "x"),
			"spec/template/metadata/labels/tier": "x"}, "spec.selector:", BySchema},
		{"MachineDeployment whose selector gets a label", Deployment, Changes{}, Changes{"spec/selector/matchLabels/tier": "x",
			"spec/template/metadata/labels/tier": "x"}, "spec.selector:", BySchema},
		{"MachineDeployment whose template no longer matches its selector", Deployment, Changes{},
			Changes{"spec/template/metadata/labels/pool": "b"}, "spec.selector:", BySchema},
		{"Machine that gets another instance", InlineMachine, Changes{"spec/providerID": providerID},
			Changes{"spec/providerID": "sim://sim-1/vm-2"}, "spec.providerID", BySchema},
		{"Machine that loses its instance", InlineMachine, Changes{"spec/providerID": providerID},
			Changes{"spec/providerID": nil}, "spec.providerID", BySchema},
	} {
		all = append(all, InvalidObject{Name: u.what, Sample: u.sample, ChangesBefore: u.was, Changes: u.changes,
			Reports: reports(u.field), By: u.by})
	}
	return all
}
