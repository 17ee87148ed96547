package driver_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
)

func oldSpecs() map[string]string {
	kubermatic := `{"subscriptionID":"` + subscription + `","tenantID":{"value":"` + tenant + `"},"clientID":"` + application +
		`","clientSecret":"` + secret + `","location":"westeurope","resourceGroup":"machines","vmSize":"Standard_D2s_v5",` +
		`"vnetName":"nodes","subnetName":"workers","vnetResourceGroup":"network","zones":["1"],` +
		`"imageReference":{"publisher":"Canonical","offer":"0001-com-ubuntu-server-jammy","sku":"22_04-lts-gen2","version":"latest"},` +
		`"osDiskSize":40,"osDiskSKU":"Premium_LRS","dataDiskSize":16,"dataDiskSKU":"Standard_LRS","assignPublicIP":true,` +
		`"loadBalancerSku":"standard","tags":{"team":"blue"}}`
	return map[string]string{
		provider.SourceMachineK8s: kubermatic, provider.SourceMachinesK8s: kubermatic, provider.SourceClusterK8s: kubermatic,
		provider.SourceGardener: `{"location":"westeurope","resourceGroup":"machines",` +
			`"tags":{"Name":"shoot--a--b","kubernetes.io-cluster-shoot--a--b":"1","kubernetes.io-role-node":"1"},` +
			`"properties":{"hardwareProfile":{"vmSize":"Standard_D2s_v5"},"zone":2,` +
			`"storageProfile":{"imageReference":{"urn":"Canonical:0001-com-ubuntu-server-jammy:22_04-lts-gen2:latest"},` +
			`"osDisk":{"caching":"None","managedDisk":{"storageAccountType":"Standard_LRS"},"diskSizeGB":50,"createOption":"FromImage"},` +
			`"dataDisks":[{"name":"a","lun":1,"caching":"None","storageAccountType":"Premium_LRS","diskSizeGB":8}]},` +
			`"osProfile":{"adminUsername":"core","linuxConfiguration":{"disablePasswordAuthentication":true,` +
			`"ssh":{"publicKeys":{"path":"/home/core/.ssh/authorized_keys","keyData":"` + sshKey + `"}}}},` +
			`"networkProfile":{"acceleratedNetworking":true}},` +
			`"subnetInfo":{"vnetName":"nodes","subnetName":"workers","vnetResourceGroup":"network"}}`,
		provider.SourceOpenShift: `{"apiVersion":"machine.openshift.io/v1beta1","kind":"AzureMachineProviderSpec",` +
			`"metadata":{"creationTimestamp":null},"userDataSecret":{"name":"worker-user-data"},` +
			`"credentialsSecret":{"name":"azure-cloud-credentials","namespace":"openshift-machine-api"},` +
			`"location":"westeurope","zone":"3","resourceGroup":"machines","vmSize":"Standard_D2s_v5",` +
			`"image":{"offer":"","publisher":"","sku":"","version":"","resourceID":"/resourceGroups/machines/providers/Microsoft.Compute/galleries/g/images/i/versions/1.0.0"},` +
			`"osDisk":{"osType":"Linux","diskSizeGB":128,"managedDisk":{"storageAccountType":"Premium_LRS"}},` +
			`"dataDisks":[{"nameSuffix":"a","diskSizeGB":8,"lun":2,"managedDisk":{"storageAccountType":"Premium_LRS"},"deletionPolicy":"Delete"}],` +
			`"publicIP":false,"vnet":"nodes","subnet":"workers","networkResourceGroup":"network","publicLoadBalancer":"infra",` +
			`"managedIdentity":"infra-identity","acceleratedNetworking":true,"spotVMOptions":{"maxPrice":"0.5"},` +
			`"tags":{"team":"blue"}}`,
		provider.SourceClusterAPI: `{"clusterName":"one","failureDomain":"2","clusterStatus":{},` +
			`"machine":{"vmSize":"Standard_D2s_v5","sshPublicKey":"` + base64.StdEncoding.EncodeToString([]byte(sshKey)) + `",` +
			`"image":{"computeGallery":{"gallery":"g","name":"i","version":"1.0.0","resourceGroup":"machines"}},` +
			`"osDisk":{"osType":"Linux","diskSizeGB":128,"cachingType":"None","managedDisk":{"storageAccountType":"Premium_LRS"}},` +
			`"dataDisks":[{"nameSuffix":"a","diskSizeGB":8,"lun":2,"managedDisk":{"storageAccountType":"Premium_LRS"}}],` +
			`"identity":"UserAssigned","userAssignedIdentities":[{"providerID":"azure:///subscriptions/` + subscription +
			`/resourceGroups/machines/providers/Microsoft.ManagedIdentity/userAssignedIdentities/nodes"}],` +
			`"enableIPForwarding":true,"spotVMOptions":{"maxPrice":"0.5","evictionPolicy":"Delete"},` +
			`"additionalTags":{"team":"blue"}},` +
			`"cluster":{"location":"westeurope","resourceGroup":"machines","subscriptionID":"` + subscription + `",` +
			`"controlPlaneEnabled":true,"identityRef":{"kind":"AzureClusterIdentity","name":"a"},"additionalTags":{"stage":"prod"},` +
			`"networkSpec":{"vnet":{"name":"nodes","resourceGroup":"network","cidrBlocks":["10.0.0.0/8"]},` +
			`"subnets":[{"name":"control-plane","role":"control-plane"},{"name":"workers","role":"node","natGateway":{"name":"n"}}],` +
			`"nodeOutboundLB":{"name":"one","frontendIPsCount":1}}},` +
			`"identity":{"type":"ServicePrincipal","tenantID":"` + tenant + `","clientID":"` + application +
			`","clientSecret":{"name":"s","namespace":"default"}}}`,
	}
}

// oldSecret is empty for machine.k8s.io and its variants, which store the credentials in the description.
func oldSecret(source string) provider.Credentials {
	switch source {
	case provider.SourceGardener:
		return provider.NewCredentials(map[string][]byte{"clientID": []byte(application), "azureClientSecret": []byte(secret),
			"subscriptionID": []byte(subscription), "azureTenantId": []byte(tenant), "userData": []byte("#!/bin/sh")})
	case provider.SourceOpenShift:
		return provider.NewCredentials(map[string][]byte{"azure_client_id": []byte(application),
			"azure_client_secret": []byte(secret + "\n"), "azure_subscription_id": []byte(subscription),
			"azure_tenant_id": []byte(tenant), "azure_region": []byte("westeurope")})
	case provider.SourceClusterAPI:
		return provider.NewCredentials(map[string][]byte{"clientSecret": []byte(secret)})
	}
	return provider.Credentials{}
}

func legacyOf(source, spec string) provider.Legacy {
	return provider.Legacy{Source: source, Provider: "azure", Spec: provider.NewSecret([]byte(spec)),
		Credentials: oldSecret(source)}
}

func legacies() (all []provider.Legacy) {
	for _, source := range provider.Sources() {
		all = append(all, legacyOf(source, oldSpecs()[source]))
	}
	return all
}

// launchLegacy launches a machine whose parts Azure keeps when the machine is deleted. If the source is
// machine.sapcloud.io, Azure deletes the parts.
func (c *cloud) launchLegacy(ctx context.Context, old provider.Legacy, name string, uid types.UID) (string,
	func(context.Context) error, error) {
	tags := map[string]string{"team": "blue", "machinist-adoptable": "true"} // An administrator permits the adoption.
	option := "Detach"
	switch old.Source {
	case provider.SourceGardener:
		tags["kubernetes.io-cluster-shoot--a--b"], tags["kubernetes.io-role-node"] = "1", "1"
		option = "Delete"
	case provider.SourceOpenShift:
		tags["kubernetes.io_cluster.infra"] = "owned"
	case provider.SourceClusterAPI:
		tags["sigs.k8s.io_cluster-api-provider-azure_cluster_one"] = "owned"
		tags["sigs.k8s.io_cluster-api-provider-azure_role"] = "node"
	default:
		tags["Machine-UID"] = string(uid)
	}
	group := "/subscriptions/" + subscription + "/resourceGroups/machines/providers/"
	nic, vm := group+"Microsoft.Network/networkInterfaces/"+name, group+"Microsoft.Compute/virtualMachines/"+name
	disk := group + "Microsoft.Compute/disks/" + name
	err := c.call(ctx, http.MethodPut, nic+"?api-version=2025-01-01", map[string]any{
		"location": "westeurope", "tags": tags,
		"properties": map[string]any{"enableIPForwarding": true, "ipConfigurations": []any{map[string]any{"name": "a",
			"properties": map[string]any{"subnet": map[string]any{"id": subnet}}}}},
	})
	if err != nil {
		return "", nil, err
	}
	c.eventually("the virtual machine is accepted", func() (bool, string) {
		err := c.call(ctx, http.MethodPut, vm+"?api-version=2025-04-01", map[string]any{
			"location": "westeurope", "tags": tags,
			"properties": map[string]any{
				"hardwareProfile": map[string]any{"vmSize": "Standard_D2s_v5"},
				"storageProfile": map[string]any{
					"imageReference": map[string]any{"publisher": "Canonical", "offer": "0001-com-ubuntu-server-jammy",
						"sku": "22_04-lts-gen2", "version": "latest"},
					"osDisk": map[string]any{"name": name + "-os", "createOption": "FromImage", "deleteOption": option},
					"dataDisks": []any{map[string]any{"name": name + "-data", "lun": 4, "createOption": "Empty", "diskSizeGB": 8,
						"deleteOption": option}},
				},
				"osProfile": map[string]any{"computerName": name, "adminUsername": "somebody",
					"linuxConfiguration": map[string]any{"disablePasswordAuthentication": true, "ssh": map[string]any{
						"publicKeys": []any{map[string]any{"path": "/home/somebody/.ssh/authorized_keys", "keyData": sshKey}}}}},
				"networkProfile": map[string]any{"networkInterfaces": []any{map[string]any{"id": nic,
					"properties": map[string]any{"primary": true, "deleteOption": option}}}},
			},
		})
		return err == nil, fmt.Sprint(err)
	})
	c.eventually("the machine runs", func() (bool, string) {
		return strings.Contains(strings.Join(c.RunningNames(), " ")+" ", name+" "), "the machine does not run"
	})
	return "azure://" + vm, func(ctx context.Context) error {
		if err := c.call(ctx, http.MethodDelete, vm+"?api-version=2025-04-01", nil); err != nil {
			return err
		}
		// Parts with the delete option Detach cannot be deleted while the machine exists.
		for part, version := range map[string]string{nic: "2025-01-01", disk + "-os": "2025-01-02", disk + "-data": "2025-01-02"} {
			c.eventually("the deletion of a part begins", func() (bool, string) {
				err := c.call(ctx, http.MethodDelete, part+"?api-version="+version, nil)
				return err == nil, fmt.Sprint(err)
			})
		}
		c.eventually("the parts are gone", func() (bool, string) {
			left := strings.Join(c.Resources(), " ")
			return !strings.Contains(left, "/"+name), left
		})
		return nil
	}, nil
}

// tagsAndOptions returns the tags of a machine, its interfaces and disks, and their delete options.
func (c *cloud) tagsAndOptions(ctx context.Context, providerID string) (map[string]string, error) {
	out := map[string]string{}
	add := func(part string, tags any) {
		all, _ := tags.(map[string]any)
		for key, text := range all {
			out[part+key] = fmt.Sprint(text)
		}
	}
	read := func(id, version string) (map[string]any, error) {
		var body map[string]any
		return body, c.read(ctx, id+"?api-version="+version, &body)
	}
	vm, err := read(strings.TrimPrefix(providerID, "azure://"), "2025-04-01")
	if err != nil {
		return nil, err
	}
	add("", vm["tags"])
	properties := vm["properties"].(map[string]any)
	for i, n := range properties["networkProfile"].(map[string]any)["networkInterfaces"].([]any) {
		nic := n.(map[string]any)
		body, err := read(nic["id"].(string), "2025-01-01")
		if err != nil {
			return nil, err
		}
		add("nic/", body["tags"])
		out[fmt.Sprintf("nic/%d deleteOption", i)] = fmt.Sprint(nic["properties"].(map[string]any)["deleteOption"])
	}
	storage := properties["storageProfile"].(map[string]any)
	for i, d := range append([]any{storage["osDisk"]}, storage["dataDisks"].([]any)...) {
		disk := d.(map[string]any)
		body, err := read(disk["managedDisk"].(map[string]any)["id"].(string), "2025-01-02")
		if err != nil {
			return nil, err
		}
		add("disk/", body["tags"])
		out[fmt.Sprintf("disk/%d deleteOption", i)] = fmt.Sprint(disk["deleteOption"])
	}
	return out, nil
}

// collectorTags returns the tags that the collector of machine.sapcloud.io looks for, in the format of tagsAndOptions.
func collectorTags() []string {
	return []string{"kubernetes.io-role-node", "nic/kubernetes.io-role-node", "disk/kubernetes.io-role-node"}
}
