package fakeazure

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// checkSize refuses a size that does not exist or is not available.
// https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/error-sku-not-available
func (a *Azure) checkSize(name string, vm object) (size, *failure) {
	all := sizes()
	i := slices.IndexFunc(all, func(s size) bool { return strings.EqualFold(s.name, name) })
	if i < 0 {
		return size{}, fail(http.StatusBadRequest, "InvalidParameter", "The value %s provided for the VM size is not valid.",
			name)
	}
	s := all[i]
	zones, _ := vm["zones"].([]any)
	missing := slices.ContainsFunc(zones, func(z any) bool {
		zone, _ := z.(string)
		return !slices.Contains(s.zones, zone)
	})
	if s.isRestricted || missing {
		return size{}, fail(http.StatusConflict, "SkuNotAvailable",
			"The requested VM size for resource 'Following SKUs have failed for Capacity Restrictions: %s' is currently not available in location '%s'.", s.name, a.options.Location)
	}
	return s, nil
}

func (a *Azure) cpusOf(name string) int {
	for _, s := range sizes() {
		if strings.EqualFold(s.name, name) {
			return s.cpus
		}
	}
	return 0
}

// coresInUse returns the number of cores that count against the quota.
func (a *Azure) coresInUse() int {
	used := a.coresNotReleased()
	for _, r := range a.resources {
		if r.kind == kindVM {
			used += a.cpusOf(text(r.body, "properties", "hardwareProfile", "vmSize"))
		}
	}
	return used
}

// checkQuota refuses more cores than the quota allows.
// https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/error-resource-quota
func (a *Azure) checkQuota(more int) *failure {
	used := a.coresInUse()
	if more > 0 && used+more > a.options.CoreQuota {
		return fail(http.StatusConflict, "OperationNotAllowed",
			"Operation could not be completed as it results in exceeding approved Total Regional Cores quota. Additional details - Deployment Model: Resource Manager, Location: %s, Current Limit: %d, Current Usage: %d, Additional Required: %d.",
			a.options.Location, a.options.CoreQuota, used, more)
	}
	return nil
}

// checkImage refuses an image that does not exist, or whose terms were not accepted.
// https://learn.microsoft.com/azure/virtual-machines/linux/cli-ps-findimage
func (a *Azure) checkImage(vm object) *failure {
	reference := child(child(child(vm, "properties"), "storageProfile"), "imageReference")
	if text(reference, "id") != "" || text(reference, "communityGalleryImageId") != "" ||
		text(reference, "sharedGalleryImageId") != "" {
		if strings.Contains(strings.ToLower(fmt.Sprint(reference)), "missing") {
			return fail(http.StatusNotFound, "GalleryImageNotFound", "The gallery image is not available in %s region.",
				a.options.Location)
		}
		return nil
	}
	publisher, offer, sku, version := text(reference, "publisher"), text(reference, "offer"), text(reference,
		"sku"), text(reference, "version")
	for _, image := range images() {
		if !strings.EqualFold(image.publisher, publisher) || !strings.EqualFold(image.offer, offer) ||
			!strings.EqualFold(image.sku, sku) || version != "latest" && !slices.Contains(image.versions, version) {
			continue
		}
		reference["exactVersion"] = image.versions[len(image.versions)-1]
		if version != "latest" {
			reference["exactVersion"] = version
		}
		if !image.plan {
			return nil
		}
		// https://learn.microsoft.com/azure/virtual-machines/marketplace-images
		if text(vm, "plan", "name") != image.sku || text(vm, "plan", "product") != image.offer ||
			text(vm, "plan", "publisher") != image.publisher {
			return fail(http.StatusBadRequest, "VMMarketplaceInvalidInput",
				"Creating a virtual machine from Marketplace image requires Plan information in the request.")
		}
		if !a.agreements[agreementKey(image.publisher, image.offer, image.sku)] {
			return fail(http.StatusBadRequest, "MarketplacePurchaseEligibilityFailed",
				"Marketplace purchase eligibility check returned errors: the legal terms of the plan have not been accepted on this subscription.")
		}
		return nil
	}
	return fail(http.StatusNotFound, "PlatformImageNotFound", "The platform image '%s:%s:%s:%s' is not available.",
		publisher, offer, sku, version)
}

// listSKUs lists the sizes and, like Azure, another resource type.
// https://learn.microsoft.com/rest/api/compute/resource-skus/list
func (c *call) listSKUs() Answer {
	location := c.azure.options.Location
	filter := c.Filter
	if filter != "" && !strings.EqualFold(filter, "location eq '"+location+"'") {
		return answer(http.StatusOK, object{"value": []object{}})
	}
	all := []object{{"resourceType": "disks", "name": "Premium_LRS", "locations": []string{location}}}
	for _, s := range sizes() {
		sku := object{
			"resourceType": "virtualMachines", "name": s.name, "tier": "Standard",
			"size":      strings.TrimPrefix(s.name, "Standard_"),
			"locations": []string{location}, "locationInfo": []object{{"location": location, "zones": s.zones}},
			"restrictions": []object{},
			"capabilities": []object{
				{"name": "vCPUs", "value": fmt.Sprint(s.cpus)}, {"name": "MemoryGB", "value": fmt.Sprint(s.memoryGB)},
				{"name": "CpuArchitectureType", "value": s.arch}, {"name": "GPUs", "value": fmt.Sprint(s.gpus)},
				{"name": "PremiumIO", "value": "True"},
			},
		}
		if s.isRestricted {
			sku["restrictions"] = []object{{"type": "Location", "values": []string{location},
				"reasonCode": "NotAvailableForSubscription"}}
		}
		all = append(all, sku)
	}
	return c.page(all)
}

func agreementKey(publisher, offer, plan string) string {
	return strings.ToLower(publisher + "/" + offer + "/" + plan)
}

// getAgreement returns the terms of a plan, accepted or not.
// https://learn.microsoft.com/rest/api/marketplaceordering/marketplace-agreements/get
func (c *call) getAgreement() Answer {
	return answer(http.StatusOK, c.agreement())
}

func (c *call) agreement() object {
	return object{"name": c.Names[2], "type": "Microsoft.MarketplaceOrdering/offertypes", "properties": object{
		"publisher": c.Names[0], "product": c.Names[1], "plan": c.Names[2],
		"accepted":  c.azure.agreements[agreementKey(c.Names[0], c.Names[1], c.Names[2])],
		"signature": "SIGNATURE-OF-" + strings.ToUpper(c.Names[2]), "licenseTextLink": "https://example.com/terms",
	}}
}

// putAgreement accepts the current terms.
// https://learn.microsoft.com/rest/api/marketplaceordering/marketplace-agreements/create
func (c *call) putAgreement() Answer {
	now := c.agreement()
	if text(c.body, "properties", "signature") != text(now, "properties", "signature") {
		return refuse(fail(http.StatusBadRequest, "BadRequest", "The signature of the terms does not match."))
	}
	accepted, _ := valueAt(c.body, "properties", "accepted").(bool)
	c.azure.agreements[agreementKey(c.Names[0], c.Names[1], c.Names[2])] = accepted
	return answer(http.StatusOK, c.agreement())
}
