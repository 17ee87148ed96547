package authorized

// neededWithoutRequest returns the grants that are needed even if no audit log contains a use, with the reasons.
func neededWithoutRequest() map[string]string {
	const (
		blocking = "no request uses this grant: the admission plugin OwnerReferencesPermissionEnforcement, which every " +
			"test enables, requires it of a user that creates an object which blocks the deletion of its owner"
		signer = "no request uses this grant: admission requires it of a user that approves a certificate of this signer"
		series = "the patch counts an event that occurs again within minutes, which happens only in some runs"
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
