package machine_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/machine"
	"machinist.dev/machinist/providers/azure/machine/sample"
)

const (
	subscription = sample.Subscription
	subnet       = sample.Subnet
	sshKey       = sample.SSHKey

	inGroup    = "/subscriptions/" + subscription + "/resourceGroups/shared/providers/"
	keys       = inGroup + "Microsoft.Compute/diskEncryptionSets/keys"
	avset      = inGroup + "Microsoft.Compute/availabilitySets/set"
	scaleSet   = inGroup + "Microsoft.Compute/virtualMachineScaleSets/flexible"
	reserved   = inGroup + "Microsoft.Compute/capacityReservationGroups/reserved"
	gallery    = inGroup + "Microsoft.Compute/galleries/images/images/node/versions/1.0.0"
	nsg        = inGroup + "Microsoft.Network/networkSecurityGroups/nodes"
	asg        = inGroup + "Microsoft.Network/applicationSecurityGroups/nodes"
	pool       = inGroup + "Microsoft.Network/loadBalancers/lb/backendAddressPools/nodes"
	someone    = inGroup + "Microsoft.ManagedIdentity/userAssignedIdentities/node"
	community  = "/CommunityGalleries/azurelinux/Images/node/Versions/latest"
	rsaKey     = "ssh-rsa " + "AAAAB3NzaC1yc2EAAAADAQABAAABgQDMachinistMachinistMachinist" + " user@example.com"
	blob       = "https://account.blob.core.windows.net/"
	privateKey = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAAB"
)

func nic(more ...any) []any {
	n := map[string]any{"subnetID": subnet}
	for i := 0; i < len(more); i += 2 {
		n[more[i].(string)] = more[i+1]
	}
	return []any{n}
}

func disk(more ...any) []any {
	d := map[string]any{"lun": 0, "sizeGiB": 1}
	for i := 0; i < len(more); i += 2 {
		if d[more[i].(string)] = more[i+1]; more[i+1] == nil {
			delete(d, more[i].(string))
		}
	}
	return []any{d}
}

func full() []byte {
	return sample.Spec(
		"image", map[string]any{"galleryImageID": gallery, "plan": map[string]any{"name": "stable-gen2", "product": "flatcar",
			"publisher": "kinvolk", "acceptTerms": true}},
		"osDisk", map[string]any{"sizeGiB": 64, "storageAccountType": "Premium_LRS", "caching": "ReadWrite",
			"diskEncryptionSetID": keys},
		"dataDisks", disk("lun", 63, "sizeGiB", 65536, "storageAccountType", "PremiumV2_LRS", "caching", "None",
			"diskEncryptionSetID", keys),
		"networkInterfaces", nic("publicIP", true, "acceleratedNetworking", true, "ipForwarding", true,
			"securityGroupID", nsg,
			"applicationSecurityGroupIDs", []any{asg}, "loadBalancerBackendPoolIDs", []any{pool}),
		"zone", "3", "scaleSetID", scaleSet, "faultDomain", 1, "capacityReservationGroupID", reserved,
		"identity", map[string]any{"systemAssigned": true, "userAssignedIDs": []any{someone}},
		"tags", map[string]any{"cost centre": "12", "Ünïcode": "ö"}, "adminUsername", "core", "sshPublicKey", rsaKey,
		"encryptionAtHost", true,
		"bootDiagnostics", map[string]any{"storageURI": blob}, "resize", "Deallocate",
	)
}

func TestParseSpecAcceptsValidSpecs(t *testing.T) {
	for name, raw := range map[string][]byte{
		"base":             sample.Spec(),
		"all fields":       full(),
		"spot":             sample.Spec("spot", map[string]any{}),
		"spot with policy": sample.Spec("spot", map[string]any{"maxPrice": 0.01234, "evictionPolicy": "Deallocate"}),
		"ephemeral":        sample.Spec("osDisk", map[string]any{"ephemeral": map[string]any{"placement": "NvmeDisk"}}),
		"community image":  sample.Spec("image", map[string]any{"communityGalleryImageID": community}),
		"shared image": sample.Spec("image",
			map[string]any{"sharedGalleryImageID": strings.Replace(community, "Community", "Shared", 1)}),
		"latest gallery": sample.Spec("image",
			map[string]any{"galleryImageID": strings.TrimSuffix(gallery, "/versions/1.0.0")}),
		"availability set": sample.Spec("zone", nil, "availabilitySetID", avset),
		"ID in lower case": sample.Spec("availabilitySetID", nil, "networkInterfaces",
			[]any{map[string]any{"subnetID": strings.ToLower(subnet)}}),
		"eight interfaces": sample.Spec("networkInterfaces",
			append(append(append(nic(), nic()...), append(nic(), nic()...)...),
				append(append(nic(), nic()...), append(nic(), nic()...)...)...)),
	} {
		if _, err := machine.ParseSpec(raw); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseSpecSetsDefaults(t *testing.T) {
	s, err := machine.ParseSpec(sample.Spec("spot", map[string]any{}))
	if err != nil {
		t.Fatal(err)
	}
	if s.AdminUsername != "machinist" || s.Resize != machine.ResizeNever || s.Spot.EvictionPolicy != "Delete" {
		t.Errorf("got the defaults %q, %q, %q", s.AdminUsername, s.Resize, s.Spot.EvictionPolicy)
	}
}

func TestEveryFieldHasTest(t *testing.T) {
	given := map[string]bool{}
	for _, raw := range [][]byte{
		full(), sample.Spec(), sample.Spec("zone", nil, "availabilitySetID", avset, "spot",
			map[string]any{"maxPrice": -1, "evictionPolicy": "Delete"}),
		sample.Spec("osDisk", map[string]any{"ephemeral": map[string]any{"placement": "CacheDisk"}}),
		sample.Spec("image", map[string]any{"communityGalleryImageID": community}),
		sample.Spec("image", map[string]any{"sharedGalleryImageID": "/SharedGalleries/a/Images/b"}),
	} {
		var all any
		if err := json.Unmarshal(raw, &all); err != nil {
			t.Fatal(err)
		}
		collect("", all, given)
	}
	var visit func(path string, of reflect.Type)
	visit = func(path string, of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct {
			return
		}
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			at := strings.TrimPrefix(path+"."+name, ".")
			if !given[at] {
				t.Errorf("no specification in these tests has the field %s", at)
			}
			visit(at, field.Type)
		}
	}
	visit("", reflect.TypeFor[machine.Spec]())
}

func collect(path string, value any, into map[string]bool) {
	into[path] = true
	switch value := value.(type) {
	case map[string]any:
		for key, child := range value {
			collect(strings.TrimPrefix(path+"."+key, "."), child, into)
		}
	case []any:
		for _, child := range value {
			collect(path, child, into)
		}
	}
}

func TestParseSpecRefusesInvalidFields(t *testing.T) {
	manyTags := map[string]any{}
	for i := range 41 {
		manyTags[fmt.Sprint("t", i)] = ""
	}
	for name, tc := range map[string]struct {
		raw   []byte
		field string
	}{
		"unknown field":                  {sample.Spec("osDisk.kind", "x"), "osDisk.kind"},
		"missing location":               {sample.Spec("location", nil), "location"},
		"location with a space":          {sample.Spec("location", "West Europe"), "location"},
		"empty resource group":           {sample.Spec("resourceGroup", ""), "resourceGroup"},
		"resource group with a path":     {sample.Spec("resourceGroup", "a/../../b"), "resourceGroup"},
		"resource group ending in a dot": {sample.Spec("resourceGroup", "a."), "resourceGroup"},
		"size with a path":               {sample.Spec("vmSize", "../x"), "vmSize"},
		"empty image":                    {sample.Spec("image", map[string]any{}), "image"},
		"two images":                     {sample.Spec("image.galleryImageID", gallery), "image"},
		"missing image version":          {sample.Spec("image.marketplace.version", nil), "image.marketplace.version"},
		"publisher with a space":         {sample.Spec("image.marketplace.publisher", "a b"), "image.marketplace.publisher"},
		"ID of a disk as image": {sample.Spec("image", map[string]any{"galleryImageID": inGroup +
			"Microsoft.Compute/disks/d"}), "image.galleryImageID"},
		"image name instead of ID": {sample.Spec("image", map[string]any{"galleryImageID": "ubuntu"}),
			"image.galleryImageID"},
		"community image with a path": {sample.Spec("image",
			map[string]any{"communityGalleryImageID": "/CommunityGalleries/../x"}), "image.communityGalleryImageID"},
		"community ID as shared image": {sample.Spec("image", map[string]any{"sharedGalleryImageID": community}),
			"image.sharedGalleryImageID"},
		"plan without a name": {sample.Spec("image.plan", map[string]any{"product": "a", "publisher": "b"}),
			"image.plan.name"},
		"disk too large":     {sample.Spec("osDisk.sizeGiB", 4096), "osDisk.sizeGiB"},
		"negative disk size": {sample.Spec("osDisk.sizeGiB", -1), "osDisk.sizeGiB"},
		"ultra disk as OS disk": {sample.Spec("osDisk.storageAccountType", "UltraSSD_LRS"),
			"osDisk.storageAccountType"},
		"unknown disk type":              {sample.Spec("osDisk.storageAccountType", "Fast"), "osDisk.storageAccountType"},
		"unknown caching":                {sample.Spec("osDisk.caching", "readonly"), "osDisk.caching"},
		"encryption set of another type": {sample.Spec("osDisk.diskEncryptionSetID", avset), "osDisk.diskEncryptionSetID"},
		"ephemeral disk with write cache": {sample.Spec("osDisk", map[string]any{"ephemeral": map[string]any{},
			"caching": "ReadWrite"}), "osDisk.caching"},
		"ephemeral premium disk": {sample.Spec("osDisk", map[string]any{"ephemeral": map[string]any{},
			"storageAccountType": "Premium_LRS"}), "osDisk.storageAccountType"},
		"unknown ephemeral placement": {sample.Spec("osDisk",
			map[string]any{"ephemeral": map[string]any{"placement": "Disk"}}), "osDisk.ephemeral.placement"},
		"missing LUN":            {sample.Spec("dataDisks", disk("lun", nil)), "dataDisks[0].lun"},
		"LUN too large":          {sample.Spec("dataDisks", disk("lun", 64)), "dataDisks[0].lun"},
		"duplicate LUN":          {sample.Spec("dataDisks", append(disk(), disk()...)), "dataDisks[1].lun"},
		"missing data disk size": {sample.Spec("dataDisks", disk("sizeGiB", nil)), "dataDisks[0].sizeGiB"},
		"ultra disk with cache": {sample.Spec("dataDisks", disk("storageAccountType", "UltraSSD_LRS", "caching",
			"ReadOnly")), "dataDisks[0].caching"},
		"unknown data disk type": {sample.Spec("dataDisks", disk("storageAccountType", "x")),
			"dataDisks[0].storageAccountType"},
		"missing interfaces": {sample.Spec("networkInterfaces", nil), "networkInterfaces"},
		"missing subnet": {sample.Spec("networkInterfaces", []any{map[string]any{}}),
			"networkInterfaces[0].subnetID"},
		"subnet ID of another type": {sample.Spec("networkInterfaces", []any{map[string]any{"subnetID": nsg}}),
			"networkInterfaces[0].subnetID"},
		"subnet ID with a query": {sample.Spec("networkInterfaces", []any{map[string]any{"subnetID": subnet + "?x"}}),
			"networkInterfaces[0].subnetID"},
		"pool ID as security group": {sample.Spec("networkInterfaces", nic("securityGroupID", pool)),
			"networkInterfaces[0].securityGroupID"},
		"duplicate security group": {sample.Spec("networkInterfaces",
			nic("applicationSecurityGroupIDs", []any{asg, strings.ToUpper(asg)})),
			"networkInterfaces[0].applicationSecurityGroupIDs[1]"},
		"empty pool ID": {sample.Spec("networkInterfaces", nic("loadBalancerBackendPoolIDs", []any{""})),
			"networkInterfaces[0].loadBalancerBackendPoolIDs[0]"},
		"zone with region":           {sample.Spec("zone", "westeurope-1"), "zone"},
		"availability set in a zone": {sample.Spec("availabilitySetID", avset), "availabilitySetID"},
		"availability set in a scale set": {sample.Spec("zone", nil, "availabilitySetID", avset, "scaleSetID", scaleSet),
			"availabilitySetID"},
		"fault domain without scale set": {sample.Spec("faultDomain", 1), "faultDomain"},
		"fault domain too large":         {sample.Spec("scaleSetID", scaleSet, "faultDomain", 5), "faultDomain"},
		"reservation ID of another type": {sample.Spec("capacityReservationGroupID", avset), "capacityReservationGroupID"},
		"price of zero":                  {sample.Spec("spot", map[string]any{"maxPrice": 0}), "spot.maxPrice"},
		"spot machine in an availability set": {sample.Spec("zone", nil, "availabilitySetID", avset, "spot", map[string]any{}),
			"spot"},
		"spot machine with reservation": {sample.Spec("capacityReservationGroupID", reserved, "spot", map[string]any{}),
			"spot"},
		"unknown eviction policy": {sample.Spec("spot", map[string]any{"evictionPolicy": "Stop"}),
			"spot.evictionPolicy"},
		"identity ID of another type": {sample.Spec("identity", map[string]any{"userAssignedIDs": []any{nsg}}),
			"identity.userAssignedIDs[0]"},
		"reserved tag of Machinist":     {sample.Spec("tags", map[string]any{"Machinist-cluster": "x"}), "tags"},
		"reserved tag of Azure":         {sample.Spec("tags", map[string]any{"microsoft-x": "x"}), "tags"},
		"tag with a slash":              {sample.Spec("tags", map[string]any{"kubernetes.io/x": "x"}), "tags"},
		"tags that differ only in case": {sample.Spec("tags", map[string]any{"Team": "x", "team": "y"}), "tags"},
		"tag value too long":            {sample.Spec("tags", map[string]any{"a": strings.Repeat("x", 257)}), "tags"},
		"tag names too long":            {sample.Spec("tags", map[string]any{strings.Repeat("x", 257): ""}), "tags"},
		"too many tags":                 {sample.Spec("tags", manyTags), "tags"},
		"user root":                     {sample.Spec("adminUsername", "root"), "adminUsername"},
		"user with a space":             {sample.Spec("adminUsername", "a b"), "adminUsername"},
		"missing SSH key":               {sample.Spec("sshPublicKey", nil), "sshPublicKey"},
		"private SSH key":               {sample.Spec("sshPublicKey", privateKey), "sshPublicKey"},
		"two SSH keys":                  {sample.Spec("sshPublicKey", rsaKey+"\n"+sshKey), "sshPublicKey"},
		"diagnostics over HTTP": {sample.Spec("bootDiagnostics", map[string]any{"storageURI": "http://a"}),
			"bootDiagnostics.storageURI"},
		"diagnostics with a signature": {sample.Spec("bootDiagnostics", map[string]any{"storageURI": blob + "?sig=x"}),
			"bootDiagnostics.storageURI"},
		"unknown resize": {sample.Spec("resize", "Live"), "resize"},
		"resize with an ephemeral disk": {sample.Spec("resize", "Deallocate", "osDisk",
			map[string]any{"ephemeral": map[string]any{}}), "resize"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := machine.ParseSpec(tc.raw)
			e, ok := errors.AsType[*provider.Error](err)
			if !ok || e.Code != provider.InvalidArgument || e.Field != tc.field {
				t.Fatalf("got %v, want InvalidArgument about %q", err, tc.field)
			}
			if len(e.Message) > 700 || strings.Contains(e.Message, "PRIVATE") {
				t.Errorf("the message is too long or contains the private key: %s", e.Message)
			}
		})
	}
}

// Encoding and parsing an accepted specification must not change it. Errors have the code InvalidArgument.
func FuzzParseSpec(f *testing.F) {
	f.Add(sample.Spec())
	f.Add(full())
	f.Add([]byte(`{"apiVersion":"azure.machinist.dev/v1beta1","kind":"AzureMachine","dataDisks":[null],"networkInterfaces":[null]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := machine.ParseSpec(raw)
		if err != nil {
			if provider.CodeOf(err) != provider.InvalidArgument {
				t.Errorf("%q: got %v, want InvalidArgument", raw, err)
			}
			return
		}
		written, err := json.Marshal(s)
		if err != nil {
			t.Fatalf("marshal %q: %v", raw, err)
		}
		again, err := machine.ParseSpec(written)
		if err != nil {
			t.Fatalf("%q was encoded as %s, which is refused: %v", raw, written, err)
		}
		if rewritten, _ := json.Marshal(again); !bytes.Equal(written, rewritten) {
			t.Errorf("encoded again: got %[2]s, want %[1]s", written, rewritten)
		}
	})
}
