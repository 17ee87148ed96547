package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"machinist.dev/machinist/pkg/provider/app"
	"machinist.dev/machinist/providers/azure/driver"
)

// settings contains the flags of this provider. None of them is a secret.
type settings struct {
	cloud              string
	authority          string
	resourceManager    string
	audience           string
	caFile             string
	federatedTokenFile string
	identityFor        []string
	createSettle       time.Duration
	endpoints          app.EndpointFlags
}

// privateCloud is the value of --azure-cloud for a cloud that Microsoft does not operate.
const privateCloud = "Private"

func cloudNames() []string { return append(slices.Sorted(maps.Keys(driver.Clouds())), privateCloud) }

func (s *settings) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.cloud, "azure-cloud", "AzurePublic", "Azure cloud to use: "+strings.Join(cloudNames(), ", "))
	fs.StringVar(&s.authority, "azure-authority-host", "", "URL of the identity platform of a Private cloud")
	fs.StringVar(&s.resourceManager, "azure-resource-manager", "", "URL of the Resource Manager of a Private cloud")
	fs.StringVar(&s.audience, "azure-resource-manager-audience", "",
		"audience of the access tokens of a Private cloud; by default the value of --azure-resource-manager")
	fs.StringVar(&s.caFile, "azure-ca-file", "",
		"file with the certificate authorities (PEM) to trust for Azure, instead of the system's")
	fs.StringVar(&s.federatedTokenFile, "azure-federated-token-file", os.Getenv("AZURE_FEDERATED_TOKEN_FILE"),
		"file with the token of this process's workload identity, for credentials without a secret and a certificate; by default $AZURE_FEDERATED_TOKEN_FILE")
	fs.StringSliceVar(&s.identityFor, "azure-workload-identity-for", nil,
		"NAMESPACE/CLIENT-ID of credentials that may use this process's workload identity; can be repeated. By default, none may use it")
	fs.DurationVar(&s.createSettle, "azure-create-settle", 2*time.Minute,
		"how long an unanswered create request may still take effect in Azure")
	s.endpoints.AddFlags(fs, driver.Name)
}

func (s *settings) options() (driver.Options, error) {
	o := driver.Options{FederatedTokenFile: s.federatedTokenFile, CreateSettle: s.createSettle,
		PrivateCloud: s.cloud == privateCloud}
	switch known, ok := driver.Clouds()[s.cloud]; {
	case ok && (s.authority != "" || s.resourceManager != "" || s.audience != ""):
		return o,
			fmt.Errorf("--azure-authority-host, --azure-resource-manager and --azure-resource-manager-audience are only for --azure-cloud=%s", privateCloud)
	case ok:
		o.Cloud = known
	case !o.PrivateCloud:
		return o, fmt.Errorf("--azure-cloud is %q, must be one of %s", s.cloud, strings.Join(cloudNames(), ", "))
	case s.authority == "" || s.resourceManager == "":
		return o, fmt.Errorf("--azure-cloud=%s needs --azure-authority-host and --azure-resource-manager", privateCloud)
	default:
		o.Cloud = driver.PrivateCloud(s.authority, s.resourceManager, s.audience)
	}
	for _, text := range s.identityFor {
		grant, err := driver.ParseGrant(text)
		if err != nil {
			return o, fmt.Errorf("--azure-workload-identity-for: %w", err)
		}
		o.WorkloadIdentityFor = append(o.WorkloadIdentityFor, grant)
	}
	if s.createSettle <= 0 {
		return o, fmt.Errorf("--azure-create-settle is %s; it must be positive", s.createSettle)
	}
	var err error
	if o.Endpoints, err = s.endpoints.Rules(); err != nil {
		return o, err
	}
	if s.caFile == "" {
		return o, nil
	}
	pem, err := os.ReadFile(s.caFile)
	if err != nil {
		return o, fmt.Errorf("--azure-ca-file: %w", err)
	}
	o.RootCAs = x509.NewCertPool()
	if !o.RootCAs.AppendCertsFromPEM(pem) {
		return o, errors.New("--azure-ca-file contains no certificate")
	}
	return o, nil
}
