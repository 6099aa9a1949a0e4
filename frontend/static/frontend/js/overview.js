// Overview and node list: tiles, ladder and numbers move; everything worded comes from the server.

import { start } from './live.js';
import { joinTiles } from './tiles.js';

joinTiles();
start();
