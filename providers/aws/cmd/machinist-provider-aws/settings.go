package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/spf13/pflag"

	"machinist.dev/machinist/pkg/provider/app"
	"machinist.dev/machinist/providers/aws/driver"
)

// settings contains the flags of this provider. None of them is a secret.
type settings struct {
	endpoint      string
	caFile        string
	processRegion string
	processFor    []string
	createSettle  time.Duration
	queues        []string
	rebalance     bool
	endpoints     app.EndpointFlags
}

func (s *settings) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.endpoint, "aws-endpoint", "",
		"URL of all services of AWS, for a test; by default the endpoints of each region")
	fs.StringVar(&s.caFile, "aws-ca-file", "",
		"file with the certificate authorities (PEM) to trust for AWS, instead of the system's")
	fs.StringSliceVar(&s.processFor, "aws-process-identity-for", nil,
		"NAMESPACE or NAMESPACE=ROLE-ARN of Secrets that may use this process's own credentials (a web identity, EKS Pod "+
			"Identity or an instance profile), as they are or to assume the role; can be repeated. By default, none may use them")
	fs.StringVar(&s.processRegion, "aws-process-identity-region", cmp.Or(os.Getenv("AWS_REGION"), "us-east-1"),
		"region of the Security Token Service for this process's own credentials; by default $AWS_REGION or us-east-1")
	fs.DurationVar(&s.createSettle, "aws-create-settle", 5*time.Minute,
		"how long reads of EC2 may be outdated, and how long an unanswered create request may still take effect")
	fs.StringSliceVar(&s.queues, "aws-interruption-queue", nil,
		"REGION=URL of an SQS queue with events of EventBridge about interruptions, one for each region; can be repeated")
	fs.BoolVar(&s.rebalance, "aws-rebalance-interrupts", false,
		"treat a rebalance recommendation as an interruption in 10 minutes")
	s.endpoints.AddFlags(fs, driver.Name)
}

func (s *settings) options(ctx context.Context) (driver.Options, error) {
	o := driver.Options{Endpoint: s.endpoint, CreateSettle: s.createSettle, RebalanceInterrupts: s.rebalance}
	for _, text := range s.processFor {
		grant, err := driver.ParseGrant(text)
		if err != nil {
			return o, fmt.Errorf("--aws-process-identity-for: %w", err)
		}
		o.ProcessFor = append(o.ProcessFor, grant)
	}
	if s.createSettle <= 0 {
		return o, fmt.Errorf("--aws-create-settle is %s; it must be positive", s.createSettle)
	}
	var err error
	if o.InterruptionQueues, err = parseQueues(s.queues); err != nil {
		return o, fmt.Errorf("--aws-interruption-queue: %w", err)
	}
	if o.Endpoints, err = s.endpoints.Rules(); err != nil {
		return o, err
	}
	if s.caFile != "" {
		pem, err := os.ReadFile(s.caFile)
		if err != nil {
			return o, fmt.Errorf("--aws-ca-file: %w", err)
		}
		o.RootCAs = x509.NewCertPool()
		if !o.RootCAs.AppendCertsFromPEM(pem) {
			return o, errors.New("--aws-ca-file contains no certificate")
		}
	}
	if len(o.ProcessFor) > 0 {
		if o.Process, err = s.processIdentity(ctx); err != nil {
			return o, fmt.Errorf("load the process's own credentials: %w", err)
		}
	}
	return o, nil
}

// processIdentity finds the process's own credentials in its environment, in the order of the SDK: an access key, a
// web identity, EKS Pod Identity, and the instance profile. Configuration files are not read.
func (s *settings) processIdentity(ctx context.Context) (aws.CredentialsProvider, error) {
	options := []func(*config.LoadOptions) error{
		config.WithSharedConfigFiles([]string{}), config.WithSharedCredentialsFiles([]string{}),
		config.WithRegion(s.processRegion),
	}
	if s.endpoint != "" {
		options = append(options, config.WithBaseEndpoint(s.endpoint))
	}
	loaded, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, err
	}
	return loaded.Credentials, nil
}

// parseQueues parses texts in the format REGION=URL.
func parseQueues(all []string) (map[string]string, error) {
	queues := map[string]string{}
	for _, text := range all {
		region, address, found := strings.Cut(text, "=")
		u, err := url.Parse(address)
		if !found || region == "" || err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return nil, fmt.Errorf("%.256q is not REGION=URL, such as "+
				"eu-west-1=https://sqs.eu-west-1.amazonaws.com/111122223333/interruptions", text)
		}
		if queues[region] != "" {
			return nil, fmt.Errorf("the region %s has two queues", region)
		}
		queues[region] = address
	}
	return queues, nil
}
