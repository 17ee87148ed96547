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

// The IDs of resources that specifications refer to.
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
	rsaKey     = "ssh-rsa " + "AAAAB3NzaC1yc2EAAAADAQABAAABgQDMachinistMachinistMachinist" + " somebody@example.com"
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

// full has every field.
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

func TestSpecificationsThatWork(t *testing.T) {
	for name, raw := range map[string][]byte{
		"the base":        sample.Spec(),
		"everything":      full(),
		"spot":            sample.Spec("spot", map[string]any{}),
		"spot, with less": sample.Spec("spot", map[string]any{"maxPrice": 0.01234, "evictionPolicy": "Deallocate"}),
		"ephemeral":       sample.Spec("osDisk", map[string]any{"ephemeral": map[string]any{"placement": "NvmeDisk"}}),
		"community image": sample.Spec("image", map[string]any{"communityGalleryImageID": community}),
		"shared image": sample.Spec("image",
			map[string]any{"sharedGalleryImageID": strings.Replace(community, "Community", "Shared", 1)}),
		"latest gallery": sample.Spec("image",
			map[string]any{"galleryImageID": strings.TrimSuffix(gallery, "/versions/1.0.0")}),
		"no zone": sample.Spec("zone", nil, "availabilitySetID", avset),
		"other case": sample.Spec("availabilitySetID", nil, "networkInterfaces",
			[]any{map[string]any{"subnetID": strings.ToLower(subnet)}}),
		"eight nics": sample.Spec("networkInterfaces",
			append(append(append(nic(), nic()...), append(nic(), nic()...)...),
				append(append(nic(), nic()...), append(nic(), nic()...)...)...)),
	} {
		if _, err := machine.ParseSpec(raw); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDefaultsAreFilledIn(t *testing.T) {
	s, err := machine.ParseSpec(sample.Spec("spot", map[string]any{}))
	if err != nil {
		t.Fatal(err)
	}
	if s.AdminUsername != "machinist" || s.Resize != machine.ResizeNever || s.Spot.EvictionPolicy != "Delete" {
		t.Errorf("got %q, %q, %q", s.AdminUsername, s.Resize, s.Spot.EvictionPolicy)
	}
}

// Every field of the specification is in the one that has all; a new one without tests is found here.
func TestEveryFieldIsTried(t *testing.T) {
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
				t.Errorf("no specification of these tests has the field %s", at)
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
		for key, deeper := range value {
			collect(strings.TrimPrefix(path+"."+key, "."), deeper, into)
		}
	case []any:
		for _, deeper := range value {
			collect(path, deeper, into)
		}
	}
}

func TestSpecificationsAreRefusedByField(t *testing.T) {
	manyTags := map[string]any{}
	for i := range 41 {
		manyTags[fmt.Sprint("t", i)] = ""
	}
	for name, tc := range map[string]struct {
		raw   []byte
		field string
	}{
		"an unknown field":             {sample.Spec("osDisk.kind", "x"), "osDisk.kind"},
		"no location":                  {sample.Spec("location", nil), "location"},
		"a location with a space":      {sample.Spec("location", "West Europe"), "location"},
		"no resource group":            {sample.Spec("resourceGroup", ""), "resourceGroup"},
		"a group that leads elsewhere": {sample.Spec("resourceGroup", "a/../../b"), "resourceGroup"},
		"a group that ends in a dot":   {sample.Spec("resourceGroup", "a."), "resourceGroup"},
		"a size that leads elsewhere":  {sample.Spec("vmSize", "../x"), "vmSize"},
		"no image":                     {sample.Spec("image", map[string]any{}), "image"},
		"two images":                   {sample.Spec("image.galleryImageID", gallery), "image"},
		"no version":                   {sample.Spec("image.marketplace.version", nil), "image.marketplace.version"},
		"a strange publisher":          {sample.Spec("image.marketplace.publisher", "a b"), "image.marketplace.publisher"},
		"an image that is a disk": {sample.Spec("image", map[string]any{"galleryImageID": inGroup +
			"Microsoft.Compute/disks/d"}), "image.galleryImageID"},
		"an image by its name": {sample.Spec("image", map[string]any{"galleryImageID": "ubuntu"}),
			"image.galleryImageID"},
		"a community image by path": {sample.Spec("image",
			map[string]any{"communityGalleryImageID": "/CommunityGalleries/../x"}), "image.communityGalleryImageID"},
		"a shared image by path": {sample.Spec("image", map[string]any{"sharedGalleryImageID": community}),
			"image.sharedGalleryImageID"},
		"a plan without a name": {sample.Spec("image.plan", map[string]any{"product": "a", "publisher": "b"}),
			"image.plan.name"},
		"a large disk":    {sample.Spec("osDisk.sizeGiB", 4096), "osDisk.sizeGiB"},
		"a negative disk": {sample.Spec("osDisk.sizeGiB", -1), "osDisk.sizeGiB"},
		"an ultra disk to boot": {sample.Spec("osDisk.storageAccountType", "UltraSSD_LRS"),
			"osDisk.storageAccountType"},
		"an unknown disk":       {sample.Spec("osDisk.storageAccountType", "Fast"), "osDisk.storageAccountType"},
		"unknown caching":       {sample.Spec("osDisk.caching", "readonly"), "osDisk.caching"},
		"a key of another type": {sample.Spec("osDisk.diskEncryptionSetID", avset), "osDisk.diskEncryptionSetID"},
		"ephemeral with writes cached": {sample.Spec("osDisk", map[string]any{"ephemeral": map[string]any{},
			"caching": "ReadWrite"}), "osDisk.caching"},
		"ephemeral and premium": {sample.Spec("osDisk", map[string]any{"ephemeral": map[string]any{},
			"storageAccountType": "Premium_LRS"}), "osDisk.storageAccountType"},
		"ephemeral somewhere": {sample.Spec("osDisk",
			map[string]any{"ephemeral": map[string]any{"placement": "Disk"}}), "osDisk.ephemeral.placement"},
		"no LUN":      {sample.Spec("dataDisks", disk("lun", nil)), "dataDisks[0].lun"},
		"a large LUN": {sample.Spec("dataDisks", disk("lun", 64)), "dataDisks[0].lun"},
		"a LUN twice": {sample.Spec("dataDisks", append(disk(), disk()...)), "dataDisks[1].lun"},
		"no size":     {sample.Spec("dataDisks", disk("sizeGiB", nil)), "dataDisks[0].sizeGiB"},
		"a cached ultra disk": {sample.Spec("dataDisks", disk("storageAccountType", "UltraSSD_LRS", "caching",
			"ReadOnly")), "dataDisks[0].caching"},
		"an unknown data disk": {sample.Spec("dataDisks", disk("storageAccountType", "x")),
			"dataDisks[0].storageAccountType"},
		"no interface": {sample.Spec("networkInterfaces", nil), "networkInterfaces"},
		"no subnet": {sample.Spec("networkInterfaces", []any{map[string]any{}}),
			"networkInterfaces[0].subnetID"},
		"a subnet that is none": {sample.Spec("networkInterfaces", []any{map[string]any{"subnetID": nsg}}),
			"networkInterfaces[0].subnetID"},
		"a subnet with a query": {sample.Spec("networkInterfaces", []any{map[string]any{"subnetID": subnet + "?x"}}),
			"networkInterfaces[0].subnetID"},
		"a group that is a pool": {sample.Spec("networkInterfaces", nic("securityGroupID", pool)),
			"networkInterfaces[0].securityGroupID"},
		"a group twice": {sample.Spec("networkInterfaces",
			nic("applicationSecurityGroupIDs", []any{asg, strings.ToUpper(asg)})),
			"networkInterfaces[0].applicationSecurityGroupIDs[1]"},
		"an empty pool": {sample.Spec("networkInterfaces", nic("loadBalancerBackendPoolIDs", []any{""})),
			"networkInterfaces[0].loadBalancerBackendPoolIDs[0]"},
		"a zone by its name": {sample.Spec("zone", "westeurope-1"), "zone"},
		"a set in a zone":    {sample.Spec("availabilitySetID", avset), "availabilitySetID"},
		"a set in a scale set": {sample.Spec("zone", nil, "availabilitySetID", avset, "scaleSetID", scaleSet),
			"availabilitySetID"},
		"a fault domain of nothing":   {sample.Spec("faultDomain", 1), "faultDomain"},
		"a large fault domain":        {sample.Spec("scaleSetID", scaleSet, "faultDomain", 5), "faultDomain"},
		"a reservation that is a set": {sample.Spec("capacityReservationGroupID", avset), "capacityReservationGroupID"},
		"a price of nothing":          {sample.Spec("spot", map[string]any{"maxPrice": 0}), "spot.maxPrice"},
		"a spot machine in a set": {sample.Spec("zone", nil, "availabilitySetID", avset, "spot", map[string]any{}),
			"spot"},
		"a reserved spot machine": {sample.Spec("capacityReservationGroupID", reserved, "spot", map[string]any{}),
			"spot"},
		"an eviction that is none": {sample.Spec("spot", map[string]any{"evictionPolicy": "Stop"}),
			"spot.evictionPolicy"},
		"an identity that is none": {sample.Spec("identity", map[string]any{"userAssignedIDs": []any{nsg}}),
			"identity.userAssignedIDs[0]"},
		"Machinist's own tag":   {sample.Spec("tags", map[string]any{"Machinist-cluster": "x"}), "tags"},
		"Azure's own tag":       {sample.Spec("tags", map[string]any{"microsoft-x": "x"}), "tags"},
		"a tag with a slash":    {sample.Spec("tags", map[string]any{"kubernetes.io/x": "x"}), "tags"},
		"a tag in two cases":    {sample.Spec("tags", map[string]any{"Team": "x", "team": "y"}), "tags"},
		"a long value of a tag": {sample.Spec("tags", map[string]any{"a": strings.Repeat("x", 257)}), "tags"},
		"long names of tags":    {sample.Spec("tags", map[string]any{strings.Repeat("x", 257): ""}), "tags"},
		"many tags":             {sample.Spec("tags", manyTags), "tags"},
		"root":                  {sample.Spec("adminUsername", "root"), "adminUsername"},
		"a user with a space":   {sample.Spec("adminUsername", "a b"), "adminUsername"},
		"no key":                {sample.Spec("sshPublicKey", nil), "sshPublicKey"},
		"a private key":         {sample.Spec("sshPublicKey", privateKey), "sshPublicKey"},
		"two keys":              {sample.Spec("sshPublicKey", rsaKey+"\n"+sshKey), "sshPublicKey"},
		"diagnostics over http": {sample.Spec("bootDiagnostics", map[string]any{"storageURI": "http://a"}),
			"bootDiagnostics.storageURI"},
		"diagnostics with a secret": {sample.Spec("bootDiagnostics", map[string]any{"storageURI": blob + "?sig=x"}),
			"bootDiagnostics.storageURI"},
		"a resize that is none": {sample.Spec("resize", "Live"), "resize"},
		"a resize of what is lost": {sample.Spec("resize", "Deallocate", "osDisk",
			map[string]any{"ephemeral": map[string]any{}}), "resize"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := machine.ParseSpec(tc.raw)
			e, ok := errors.AsType[*provider.Error](err)
			if !ok || e.Code != provider.InvalidArgument || e.Field != tc.field {
				t.Fatalf("got %v, want InvalidArgument about %q", err, tc.field)
			}
			if len(e.Message) > 700 || strings.Contains(e.Message, "PRIVATE") {
				t.Errorf("the message is long, or shows what nobody should see: %s", e.Message)
			}
		})
	}
}

// Whatever is accepted stays the same when it is written and read again; whatever is not has a code.
func FuzzParseSpec(f *testing.F) {
	f.Add(sample.Spec())
	f.Add(full())
	f.Add([]byte(`{"apiVersion":"azure.machinist.dev/v1beta1","kind":"AzureMachine","dataDisks":[null],"networkInterfaces":[null]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := machine.ParseSpec(raw)
		if err != nil {
			if provider.CodeOf(err) != provider.InvalidArgument {
				t.Errorf("%q: %v", raw, err)
			}
			return
		}
		written, err := json.Marshal(s)
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		again, err := machine.ParseSpec(written)
		if err != nil {
			t.Fatalf("%q became %s, which is refused: %v", raw, written, err)
		}
		if rewritten, _ := json.Marshal(again); !bytes.Equal(written, rewritten) {
			t.Errorf("%s became %s", written, rewritten)
		}
	})
}
