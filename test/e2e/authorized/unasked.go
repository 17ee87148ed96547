package authorized

// unasked are grants that no request needs to show, each with the reason why it is there nevertheless.
func unasked() map[string]string {
	const (
		blocking = "not asked for by a request: where OwnerReferencesPermissionEnforcement is on, as in every test of the suite, " +
			"admission asks it of whoever makes an object that blocks its owner's deletion"
		signer = "not asked for by a request: admission asks it of whoever approves a certificate of that signer"
		series = "an event that comes again within minutes is counted by a patch: whether one does is up to chance"
		extend = "a token is extended only after hours, for a machine with a longer timeouts.creation"
	)
	return map[string]string{
		"manager-control: update machinedeployments/finalizers.machinist.dev":                              blocking,
		"manager-control: update machinesets/finalizers.machinist.dev":                                     blocking,
		"provider-target: approve signers.certificates.k8s.io kubernetes.io/kube-apiserver-client-kubelet": signer,
		"provider-target: approve signers.certificates.k8s.io kubernetes.io/kubelet-serving":               signer,
		"provider-target in kube-system: patch secrets":                                                    extend,
		"manager-control: patch events":                                                                    series,
		"provider-control: patch events":                                                                   series,
		"provider-control in machinist-system: patch events":                                               series,
	}
}
