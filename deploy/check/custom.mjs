// Validates objects of the Prometheus operator and the Gateway API against their schemas: JSON from stdin, a list of objects.
// Prints a line for each that does not hold ("bad") or has no schema here ("skipped"). It is run where the packages are, for
// imports are looked up beside the file.
import { readFileSync } from 'node:fs';

const packages = {
  'monitoring.coreos.com/v1': await import('@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1'),
  'gateway.networking.k8s.io/v1': await import('@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1'),
};

for (const object of JSON.parse(readFileSync(0, 'utf8'))) {
  const name = `${object.kind} ${object.metadata.name}`;
  const Kind = packages[object.apiVersion]?.[object.kind];
  if (!Kind) {
    console.log(`skipped ${name}: no schema in the package`);
    continue;
  }
  try {
    new Kind(object).validate();
  } catch (error) {
    console.log(`bad ${name}: ${error.message}`);
  }
}
