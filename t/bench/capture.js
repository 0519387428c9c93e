// The body of a request to a file, as a user of njs would write it: a
// variable of an access log, evaluated when the request is done.

import fs from 'fs';

function capture(r) {
    var body = r.requestBuffer;

    if (body) {
        fs.appendFileSync(r.variables.capture_file,
                          Buffer.concat([body, Buffer.from('\n')]));
    }

    return '';
}

export default { capture };
