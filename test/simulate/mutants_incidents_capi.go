package main

// unownedSetListed has a deployment adopt a set that lost its owner when a live list shows it (rule
// orphaned-set-adopted).
var unownedSetListed = &mutant{
	file: "internal/machinedeployment/claim.go",
	from: "		case unowned(set):\n", to: "		case unowned(set) && ctx == nil:\n",
}

// clusterAPIMutants are planted bugs with the causes of incidents of Cluster API and OpenShift's machine API. All of
// them were here until the scenarios of these incidents found them; no other scenario had.
func clusterAPIMutants() []mutant {
	return []mutant{
		{
			name: "released-machines-not-counted", file: "internal/machineset/scale.go",
			from: "-s.Preserved-s.Released)", to: "-s.Preserved)",
			scenario: "incident-policy-relabels", finds: "incident: a set makes no machines without end", last: 6,
		},
		{
			name: "orphans-from-the-cache", file: "internal/machineset/observe.go",
			from: "	p.state.Orphans = orphans\n", to: "	_ = orphans\n",
			scenario: "incident-restored-without-owners", finds: "incident: a fleet that is restored", last: 8,
		},
		{
			name: "unowned-set-is-a-collision", file: "internal/machinedeployment/apply.go",
			from: "|| p.mayAdopt(&taken)) &&", to: "|| p.mayAdopt(&taken) && ctx == nil) &&", without: unownedSetListed,
			scenario: "incident-restored-without-owners", finds: "incident: a fleet that is restored", last: 36,
		},
		{
			name: "no-addresses-believed", file: "internal/bootstrap/approval/controller.go",
			from: "		case !hasIP(addresses):\n", to: "		case !hasIP(addresses) && ctx == nil:\n",
			scenario: "incident-addresses-come-late", finds: "incident: a certificate is approved soon", last: 6,
		},
	}
}
